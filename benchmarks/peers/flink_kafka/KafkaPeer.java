import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectReader;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectWriter;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The jobs of benchmarks/kafka_jobs.py, exactly once, with Flink's own Kafka connector. */
public final class KafkaPeer {
    private static final long FIRST_ID = 1_000_000;
    private static final String NOTE = "x".repeat(40);

    private KafkaPeer() {}

    /** A record. */
    public static final class Order {
        public long id;
        public String user;
        public double price;
        public String note;
    }

    /** Reads an order, and says when the first one came. */
    public static final class Reading extends AbstractDeserializationSchema<Order> {
        private transient ObjectReader reader;

        @Override
        public Order deserialize(byte[] value) throws java.io.IOException {
            if (reader == null) {
                reader = new ObjectMapper().readerFor(Order.class);
                Results.started();
            }
            return reader.readValue(value);
        }
    }

    /** Writes an order. */
    public static final class Writing implements SerializationSchema<Order> {
        private transient ObjectWriter writer;

        @Override
        public byte[] serialize(Order order) {
            if (writer == null) {
                writer = new ObjectMapper().writerFor(Order.class);
            }
            try {
                return writer.writeValueAsBytes(order);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    /** Makes orders from numbers. */
    public static final class Orders implements IndexSource.Maker<Order> {
        private long id;

        @Override
        public void seek(long index) {
            id = FIRST_ID + index;
        }

        @Override
        public Order next() {
            Order order = new Order();
            order.id = id;
            order.user = user(id % 1000);
            order.price = 1000.5 + id % 9000;
            order.note = NOTE;
            id++;
            return order;
        }

        private static String user(long number) {
            String digits = Long.toString(number);
            return "user-" + "000000".substring(digits.length()) + digits;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Work work = new Work(arguments);
        int parallelism = (int) work.number("parallelism");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(
                parallelism, Peer.configuration(work, parallelism));
        env.getConfig().enableObjectReuse();
        env.enableCheckpointing(work.number("checkpoint_ms"));
        DataStream<Order> orders = orders(env, work);
        if (work.name().equals("source")) {
            orders.sinkTo(new CheckSink<>((order, tally) -> {
                tally.count++;
                tally.checksum += order.id;
            }));
        } else {
            orders.sinkTo(sink(work));
        }
        env.execute(work.name());
        if (!work.name().equals("source")) {
            Results.ended(0, 0, Map.of());
        }
        Results.print();
    }

    private static DataStream<Order> orders(StreamExecutionEnvironment env, Work work) {
        if (work.name().equals("sink")) {
            return Jobs.source(env, work, new Orders(), 0, 0, TypeInformation.of(Order.class));
        }
        KafkaSource<Order> source = KafkaSource.<Order>builder()
                .setBootstrapServers(work.text("bootstrap", ""))
                .setTopics(work.text("topic", ""))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new Reading())
                .build();
        return env.fromSource(source, WatermarkStrategy.noWatermarks(), "in");
    }

    private static KafkaSink<Order> sink(Work work) {
        return KafkaSink.<Order>builder()
                .setBootstrapServers(work.text("bootstrap", ""))
                .setRecordSerializer(KafkaRecordSerializationSchema.<Order>builder()
                        .setTopic(work.text("results", ""))
                        .setValueSerializationSchema(new Writing())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(work.text("results", ""))
                .setProperty("transaction.timeout.ms", "300000")
                .build();
    }
}
