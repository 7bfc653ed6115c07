import java.time.Duration;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MetricOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.configuration.WebOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * The workloads of minirt/laboratory/workloads, for {@code minirt compare --peers flink}. Runs until its standard
 * input ends, and prints a line of JSON for each look at its counters.
 */
public final class Compare {
    private static final long LOOK_MS = 250;
    private static final double LEAST_S = 1e-5;
    private static final double STEP = 1.02;
    private static final int BUCKETS = 1400;
    private static final int RECORDS_PER_STAMP = 128;
    private static final int PIECE_CHARS = 100;

    private static final LongAdder read = new LongAdder();
    private static final LongAdder written = new LongAdder();
    private static final AtomicLongArray latencies = new AtomicLongArray(BUCKETS);

    private Compare() {}

    /** Id, key, when it was made in nanoseconds since 1970, text. */
    private static final TypeInformation<Tuple4<Long, Long, Long, String>> RECORD =
            new TypeHint<Tuple4<Long, Long, Long, String>>() {}.getTypeInfo();

    public static void main(String[] arguments) throws Exception {
        Work work = new Work(arguments);
        int parallelism = (int) work.number("parallelism");
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration(work, parallelism));
        env.getConfig().enableObjectReuse();
        env.enableCheckpointing(work.number("interval_ms"));
        env.getCheckpointConfig().setCheckpointTimeout(Duration.ofMinutes(10).toMillis());
        define(env, work);
        JobClient job = env.executeAsync();
        System.out.println(String.format("{\"job\": \"%s\"}", job.getJobID()));
        Thread watcher = new Thread(Compare::tellForEver);
        watcher.setDaemon(true);
        watcher.start();
        while (System.in.read() >= 0) {}
        Runtime.getRuntime().halt(0); // To cancel would wait for records that take long.
    }

    private static Configuration configuration(Work work, int parallelism) {
        Configuration configuration = new Configuration();
        configuration.set(TaskManagerOptions.NUM_TASK_SLOTS, parallelism);
        configuration.set(StateBackendOptions.STATE_BACKEND, "hashmap");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + work.text("storage", ""));
        configuration.set(CheckpointingOptions.ENABLE_UNALIGNED, work.text("mode", "aligned").equals("unaligned"));
        long debloatMs = work.number("debloat_ms");
        configuration.set(TaskManagerOptions.BUFFER_DEBLOAT_ENABLED, debloatMs > 0);
        if (debloatMs > 0) {
            configuration.set(TaskManagerOptions.BUFFER_DEBLOAT_TARGET, Duration.ofMillis(debloatMs));
        }
        configuration.set(MetricOptions.METRIC_FETCHER_UPDATE_INTERVAL, Duration.ofMillis(400));
        configuration.set(WebOptions.CHECKPOINTS_HISTORY_SIZE, 1000);
        configuration.set(RestOptions.BIND_PORT, work.text("rest_port", "0"));
        return configuration;
    }

    private static void define(StreamExecutionEnvironment env, Work work) {
        IndexSource<Tuple4<Long, Long, Long, String>> numbers =
                new IndexSource<>((long) 1e15, new Numbers(work), 0, 0);
        DataStream<Tuple4<Long, Long, Long, String>> records = env.fromSource(
                numbers, org.apache.flink.api.common.eventtime.WatermarkStrategy.noWatermarks(), "numbers", RECORD);
        switch (work.name()) {
            case "throttled":
                records = records.keyBy(record -> record.f1, TypeInformation.of(Long.class));
                break;
            case "checkpointing-time":
                records = records.rebalance().map(record -> record).returns(RECORD).name("map").rebalance();
                break;
            default:
                throw new IllegalArgumentException("no such workload: " + work.name());
        }
        records.map(new Slow(work)).returns(RECORD).name("slow").sinkTo(new CheckSink<>(Compare::see)).name("out");
    }

    private static void see(Tuple4<Long, Long, Long, String> record, CheckSink.Tally tally) {
        written.increment();
        double seconds = Math.max((Clock.nanos() - record.f2) / 1e9, LEAST_S);
        latencies.incrementAndGet(Math.min(BUCKETS - 1, (int) (Math.log(seconds / LEAST_S) / Math.log(STEP))));
    }

    static final class Numbers implements IndexSource.Maker<Tuple4<Long, Long, Long, String>> {
        private final long keys;
        private final long hotBelow;
        private final int chars;
        private long first = -1;
        private long index;
        private long made;

        Numbers(Work work) {
            this.keys = work.number("keys");
            this.hotBelow = work.number("hot_per_mille");
            this.chars = (int) work.number("payload_chars");
        }

        @Override
        public void seek(long index) {
            this.first = index;
            this.index = index;
        }

        @Override
        public Tuple4<Long, Long, Long, String> next() {
            long number = index - first;
            if (number % RECORDS_PER_STAMP == 0) {
                made = Clock.nanos();
                read.add(RECORDS_PER_STAMP);
            }
            long scattered = number * Work.SPREAD % (1L << 32);
            long key = scattered % 1000 < hotBelow ? 0 : scattered / 1000 % keys;
            return Tuple4.of(index++, key, made, text(number));
        }

        private String text(long number) {
            if (chars == PIECE_CHARS) {
                return Payload.of(number);
            }
            int pieces = (chars + PIECE_CHARS - 1) / PIECE_CHARS;
            StringBuilder whole = new StringBuilder();
            for (int piece = 0; piece < pieces; piece++) {
                whole.append(Payload.of(number * pieces + piece));
            }
            return whole.substring(0, chars);
        }
    }

    /** Takes its time for each record, as Slow of minirt/laboratory/workloads/parts.py. */
    static final class Slow extends RichMapFunction<Tuple4<Long, Long, Long, String>, Tuple4<Long, Long, Long, String>> {
        private final double nanos;
        private final String shape;
        private final double periodS;
        private int subtask;
        private long began;

        Slow(Work work) {
            this.nanos = work.decimal("record_ms") * 1e6;
            this.shape = work.text("shape", "steady");
            this.periodS = Double.parseDouble(work.text("period_s", "0"));
        }

        @Override
        public void open(OpenContext context) {
            subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        }

        @Override
        public Tuple4<Long, Long, Long, String> map(Tuple4<Long, Long, Long, String> record) {
            long wait = (long) (nanos * factor());
            if (wait > 0) {
                LockSupport.parkNanos(wait);
            }
            return record;
        }

        private double factor() {
            if (began == 0) {
                began = System.nanoTime();
            }
            double passed = (System.nanoTime() - began) / 1e9;
            switch (shape) {
                case "bursty":
                    return periodS == 0 || Math.floor(passed / periodS) % 2 == 0 ? 1 : 0;
                case "one_slow":
                    return subtask == 0 ? 8 : 1;
                case "slow_then_fast":
                    return passed < periodS ? 1 : 0;
                default:
                    return 1;
            }
        }
    }

    private static void tellForEver() {
        while (true) {
            LockSupport.parkNanos(LOOK_MS * 1_000_000);
            StringBuilder found = new StringBuilder();
            for (int bucket = 0; bucket < BUCKETS; bucket++) {
                long count = latencies.getAndSet(bucket, 0);
                if (count > 0) {
                    found.append(found.length() == 0 ? "" : ", ").append("[" + bucket + ", " + count + "]");
                }
            }
            System.out.println(String.format(
                    java.util.Locale.ROOT,
                    "{\"at\": %.6f, \"read\": %d, \"written\": %d, \"latencies\": [%s]}",
                    System.nanoTime() / 1e9, read.sum(), written.sum(), found));
        }
    }
}
