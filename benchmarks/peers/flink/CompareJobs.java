import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/** The graphs of minirt/laboratory/workloads, by their names. */
final class CompareJobs {
    private static final TypeInformation<Long> LONG = TypeInformation.of(Long.class);
    private static final long CHECK_BELOW = 1L << 31;

    private CompareJobs() {}

    static void define(StreamExecutionEnvironment env, Work work) {
        boolean timed = work.name().equals("windowed") || work.name().equals("joined");
        WatermarkStrategy<Tuple4<Long, Long, Long, String>> watermarks = timed
                ? WatermarkStrategy.<Tuple4<Long, Long, Long, String>>forMonotonousTimestamps()
                        .withTimestampAssigner((record, before) -> Numbered.numberInSplit(record.f0))
                : WatermarkStrategy.noWatermarks();
        DataStream<Tuple4<Long, Long, Long, String>> records =
                env.fromSource(Numbered.source(work), watermarks, "numbers", Numbered.TYPE);
        switch (work.name()) {
            case "throttled":
                slowed(records.keyBy(record -> record.f1, LONG), work);
                break;
            case "checkpointing-time":
                slowed(records.rebalance().map(record -> record).returns(Numbered.TYPE).name("map").rebalance(), work);
                break;
            case "aws-peak":
                awsPeak(records, work);
                break;
            case "windowed":
                windowed(records, work);
                break;
            case "joined":
                joined(records, work.number("waiting"));
                break;
            case "skewed-join":
                skewedJoin(records, work);
                break;
            default:
                throw new IllegalArgumentException("no such workload: " + work.name());
        }
    }

    private static void slowed(DataStream<Tuple4<Long, Long, Long, String>> records, Work work) {
        out(records.map(new Throttles.Slow(work)).returns(Numbered.TYPE).name("slow"), record -> record.f2);
    }

    private static void awsPeak(DataStream<Tuple4<Long, Long, Long, String>> records, Work work) {
        TypeInformation<Tuple5<Long, Long, Long, String, Long>> counted =
                new TypeHint<Tuple5<Long, Long, Long, String, Long>>() {}.getTypeInfo();
        DataStream<Tuple5<Long, Long, Long, String, Long>> counts = records.map(
                        record -> Tuple4.of(record.f0, record.f1, record.f2, record.f3.strip()))
                .returns(Numbered.TYPE)
                .name("parse")
                .keyBy(record -> record.f1, LONG)
                .map(new Count())
                .returns(counted)
                .name("count")
                .rebalance();
        double quota = work.decimal("quota") / work.number("parallelism");
        out(counts.map(new Throttles.Quota<Tuple5<Long, Long, Long, String, Long>>(quota)).returns(counted).name("quota"),
                record -> record.f2);
    }

    private static void windowed(DataStream<Tuple4<Long, Long, Long, String>> records, Work work) {
        TypeInformation<Tuple3<Long, Long, Long>> named = new TypeHint<Tuple3<Long, Long, Long>>() {}.getTypeInfo();
        Duration size = Duration.ofMillis(Math.max(1, work.number("window_records")));
        out(records.map(record -> Tuple3.of(record.f1, record.f0 * Work.SPREAD & (CHECK_BELOW - 1), record.f2))
                        .returns(named)
                        .name("named")
                        .keyBy(record -> record.f0, LONG)
                        .window(TumblingEventTimeWindows.of(size))
                        .aggregate(new Sums(), named, named)
                        .name("windows"),
                sums -> sums.f2);
    }

    private static void joined(DataStream<Tuple4<Long, Long, Long, String>> records, long waiting) {
        TypeInformation<Tuple2<Long, String>> sent = new TypeHint<Tuple2<Long, String>>() {}.getTypeInfo();
        TypeInformation<Tuple2<Long, Long>> answer = new TypeHint<Tuple2<Long, Long>>() {}.getTypeInfo();
        DataStream<Tuple2<Long, String>> left = records.filter(record -> record.f0 % 2 == 0)
                .map(record -> Tuple2.of(pair(record.f0, 0), record.f3))
                .returns(sent)
                .name("sent");
        DataStream<Tuple2<Long, Long>> right = records.filter(
                        record -> record.f0 % 2 == 1 && Numbered.numberInSplit(record.f0) / 2 >= waiting)
                .map(record -> Tuple2.of(pair(record.f0, waiting), record.f2))
                .returns(answer)
                .name("answer");
        out(left.keyBy(record -> record.f0, LONG)
                        .intervalJoin(right.keyBy(record -> record.f0, LONG))
                        .between(Duration.ZERO, Duration.ofMillis(2 * waiting + 1))
                        .process(new Together(), Numbered.TYPE)
                        .name("pairs"),
                record -> record.f2);
    }

    /** The number of a pair: that of its split, and below the number of the pair in that split. */
    private static long pair(long id, long waiting) {
        return Numbered.firstIdOfSplit(id) + Numbered.numberInSplit(id) / 2 - waiting;
    }

    private static void skewedJoin(DataStream<Tuple4<Long, Long, Long, String>> records, Work work) {
        long waiting = work.number("waiting");
        long keys = work.number("keys");
        long hotBelow = work.number("hot_per_mille");
        DataStream<Tuple4<Long, Long, Long, String>> right = records.filter(
                        record -> Numbered.numberInSplit(record.f0) >= waiting)
                .map(record -> {
                    long id = record.f0 - waiting;
                    return Tuple4.of(id, Numbered.keyOf(Numbered.numberInSplit(id), keys, hotBelow), record.f2, "");
                })
                .returns(Numbered.TYPE)
                .name("right");
        out(records.keyBy(record -> record.f1, LONG)
                        .connect(right.keyBy(record -> record.f1, LONG))
                        .process(new Pairs(), Numbered.TYPE)
                        .name("pairs"),
                record -> record.f2);
    }

    /** When the newest record of a result was made. */
    interface Made<T> extends java.io.Serializable {
        long of(T result);
    }

    private static <T> void out(DataStream<T> results, Made<T> made) {
        results.sinkTo(new CheckSink<>((result, tally) -> Compare.arrived(made.of(result)))).name("out");
    }

    /** How many records of its key there were. */
    static final class Count
            extends RichMapFunction<Tuple4<Long, Long, Long, String>, Tuple5<Long, Long, Long, String, Long>> {
        private transient ValueState<Long> seen;

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Long.class));
        }

        @Override
        public Tuple5<Long, Long, Long, String, Long> map(Tuple4<Long, Long, Long, String> record) throws Exception {
            Long before = seen.value();
            long count = before == null ? 1 : before + 1;
            seen.update(count);
            return Tuple5.of(record.f0, record.f1, record.f2, record.f3, count);
        }
    }

    /** How many records there were, the sum of their checks, and when the newest one was made. */
    static final class Sums
            implements AggregateFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        @Override
        public Tuple3<Long, Long, Long> createAccumulator() {
            return Tuple3.of(0L, 0L, 0L);
        }

        @Override
        public Tuple3<Long, Long, Long> add(Tuple3<Long, Long, Long> record, Tuple3<Long, Long, Long> sums) {
            return Tuple3.of(sums.f0 + 1, sums.f1 + record.f1, Math.max(sums.f2, record.f2));
        }

        @Override
        public Tuple3<Long, Long, Long> getResult(Tuple3<Long, Long, Long> sums) {
            return sums;
        }

        @Override
        public Tuple3<Long, Long, Long> merge(Tuple3<Long, Long, Long> one, Tuple3<Long, Long, Long> other) {
            return Tuple3.of(one.f0 + other.f0, one.f1 + other.f1, Math.max(one.f2, other.f2));
        }
    }

    static final class Together
            extends ProcessJoinFunction<Tuple2<Long, String>, Tuple2<Long, Long>, Tuple4<Long, Long, Long, String>> {
        @Override
        public void processElement(
                Tuple2<Long, String> left,
                Tuple2<Long, Long> right,
                Context context,
                Collector<Tuple4<Long, Long, Long, String>> results) {
            results.collect(Tuple4.of(left.f0, 0L, right.f1, left.f1));
        }
    }

    /** Whichever of two partners comes first waits for the other. */
    static final class Pairs
            extends KeyedCoProcessFunction<
                    Long,
                    Tuple4<Long, Long, Long, String>,
                    Tuple4<Long, Long, Long, String>,
                    Tuple4<Long, Long, Long, String>> {
        private transient MapState<Long, String> lefts;
        private transient MapState<Long, Long> rights;

        @Override
        public void open(OpenContext context) {
            lefts = getRuntimeContext().getMapState(new MapStateDescriptor<>("lefts", Long.class, String.class));
            rights = getRuntimeContext().getMapState(new MapStateDescriptor<>("rights", Long.class, Long.class));
        }

        @Override
        public void processElement1(
                Tuple4<Long, Long, Long, String> record,
                Context context,
                Collector<Tuple4<Long, Long, Long, String>> results)
                throws Exception {
            Long made = rights.get(record.f0);
            if (made == null) {
                lefts.put(record.f0, record.f3);
            } else {
                rights.remove(record.f0);
                results.collect(Tuple4.of(record.f0, record.f1, made, record.f3));
            }
        }

        @Override
        public void processElement2(
                Tuple4<Long, Long, Long, String> record,
                Context context,
                Collector<Tuple4<Long, Long, Long, String>> results)
                throws Exception {
            String text = lefts.get(record.f0);
            if (text == null) {
                rights.put(record.f0, record.f2);
            } else {
                lefts.remove(record.f0);
                results.collect(Tuple4.of(record.f0, record.f1, record.f2, text));
            }
        }
    }
}
