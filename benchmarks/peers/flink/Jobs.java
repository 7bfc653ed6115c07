import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple10;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The jobs of benchmarks/jobs.py in the DataStream API. */
final class Jobs {
    private Jobs() {}

    static void define(StreamExecutionEnvironment env, Work work) {
        switch (work.name()) {
            case "keyed-sum":
                keyedSum(env, work, index -> index, key -> key, new TypeHint<Tuple2<Long, Long>>() {});
                break;
            case "keyed-sum-str":
                String[] names = new String[(int) work.number("keys")];
                for (int number = 0; number < names.length; number++) {
                    names[number] = String.format("user-%08d", number);
                }
                keyedSum(
                        env,
                        work,
                        number -> names[(int) number],
                        name -> Long.parseLong(name.substring(5)),
                        new TypeHint<Tuple2<String, Long>>() {});
                break;
            case "filter-project":
                filterProject(env, work);
                break;
            case "tumbling-count":
                tumblingCount(env, work);
                break;
            case "latency":
                latency(env, work);
                break;
            case "backpressure":
                Backpressure.define(env, work);
                break;
            default:
                throw new IllegalArgumentException("no such work: " + work.name());
        }
    }

    interface KeyOf<K> extends java.io.Serializable {
        K of(long number);
    }

    interface NumberOf<K> extends java.io.Serializable {
        long of(K key);
    }

    /** Walks through the keys in the order of (index * SPREAD) % keys, with an addition for each. */
    abstract static class KeyWalk<T> implements IndexSource.Maker<T> {
        private final long keys;
        private final long step;
        private long key;

        KeyWalk(long keys) {
            this.keys = keys;
            this.step = Work.SPREAD % keys;
        }

        @Override
        public void seek(long index) {
            key = (index * Work.SPREAD) % keys;
        }

        final long nextKey() {
            long current = key;
            key += step;
            if (key >= keys) {
                key -= keys;
            }
            return current;
        }
    }

    static final class Pairs<K> extends KeyWalk<Tuple2<K, Long>> {
        private final KeyOf<K> keyOf;
        private final Tuple2<K, Long> pair = Tuple2.of(null, 1L);

        Pairs(long keys, KeyOf<K> keyOf) {
            super(keys);
            this.keyOf = keyOf;
        }

        @Override
        public Tuple2<K, Long> next() {
            pair.f0 = keyOf.of(nextKey());
            return pair;
        }
    }

    static final class RunningSum<K> extends RichMapFunction<Tuple2<K, Long>, Tuple2<K, Long>> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Long.class));
        }

        @Override
        public Tuple2<K, Long> map(Tuple2<K, Long> pair) throws Exception {
            Long before = total.value();
            pair.f1 = before == null ? pair.f1 : before + pair.f1;
            total.update(pair.f1);
            return pair;
        }
    }

    private static <K> void keyedSum(
            StreamExecutionEnvironment env,
            Work work,
            KeyOf<K> keyOf,
            NumberOf<K> numberOf,
            TypeHint<Tuple2<K, Long>> hint) {
        TypeInformation<Tuple2<K, Long>> type = hint.getTypeInfo();
        TypeInformation<K> keyType = ((org.apache.flink.api.java.typeutils.TupleTypeInfo<?>) type).getTypeAt(0);
        long last = work.number("records") / work.number("keys");
        source(env, work, new Pairs<>(work.number("keys"), keyOf), 0, 0, type)
                .keyBy(pair -> pair.f0, keyType)
                .map(new RunningSum<>())
                .returns(type)
                .sinkTo(new CheckSink<>((pair, tally) -> {
                    if (pair.f1 >= last) {
                        tally.count++;
                        tally.checksum += numberOf.of(pair.f0);
                    }
                }));
    }

    /** k, v0, .. v8. */
    static final class Wide extends KeyWalk<Tuple10<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long>> {
        private final Tuple10<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long> record = new Tuple10<>();
        private long index;

        Wide(long keys) {
            super(keys);
        }

        @Override
        public void seek(long index) {
            super.seek(index);
            this.index = index;
        }

        @Override
        public Tuple10<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long> next() {
            record.setFields(
                    nextKey(), index, index + 1, index + 2, index + 3, index + 4, index + 5, index + 6, index + 7,
                    index + 8);
            index++;
            return record;
        }
    }

    private static void filterProject(StreamExecutionEnvironment env, Work work) {
        source(env, work, new Wide(work.number("keys")), 0, 0, new TypeHint<
                        Tuple10<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long>>() {}
                .getTypeInfo())
                .filter(record -> (record.f1 & 1) == 0)
                .map(record -> Tuple4.of(record.f0, record.f2, record.f3 + record.f4, record.f5 * 2))
                .returns(new TypeHint<Tuple4<Long, Long, Long, Long>>() {})
                .sinkTo(new CheckSink<>((record, tally) -> {
                    tally.count++;
                    tally.checksum += record.f2 + record.f3;
                }));
    }

    static final class Count implements AggregateFunction<Tuple2<Long, Long>, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Tuple2<Long, Long> pair, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    static final class WithWindow extends ProcessWindowFunction<Long, Tuple3<Long, Long, Long>, Long, TimeWindow> {
        @Override
        public void process(
                Long key, Context context, Iterable<Long> counts, Collector<Tuple3<Long, Long, Long>> out) {
            out.collect(Tuple3.of(key, context.window().getStart(), counts.iterator().next()));
        }
    }

    private static void tumblingCount(StreamExecutionEnvironment env, Work work) {
        long recordsPerMs = Work.RECORDS_PER_WINDOW / Work.WINDOW_MS / env.getParallelism();
        source(env, work, new Pairs<>(work.number("keys"), key -> key), recordsPerMs, 0,
                        new TypeHint<Tuple2<Long, Long>>() {}.getTypeInfo())
                .keyBy(pair -> pair.f0, TypeInformation.of(Long.class))
                .window(TumblingEventTimeWindows.of(Duration.ofMillis(Work.WINDOW_MS)))
                .aggregate(new Count(), new WithWindow())
                .sinkTo(new CheckSink<>((result, tally) -> {
                    tally.count++;
                    tally.checksum += (result.f0 + 1) * (result.f1 / Work.WINDOW_MS + 1) * result.f2;
                }));
    }

    /** Key, one, and the moment of creation in nanoseconds since 1970; 0 for the records that are made first. */
    static final class Stamped extends KeyWalk<Tuple3<Long, Long, Long>> {
        private long warmingUp;

        Stamped(long keys, long warmingUp) {
            super(keys);
            this.warmingUp = warmingUp;
        }

        @Override
        public Tuple3<Long, Long, Long> next() {
            return Tuple3.of(nextKey(), 1L, warmingUp-- > 0 ? 0L : Clock.nanos());
        }
    }

    static final class StampedSum extends RichMapFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Long.class));
        }

        @Override
        public Tuple3<Long, Long, Long> map(Tuple3<Long, Long, Long> record) throws Exception {
            Long before = total.value();
            record.f1 = before == null ? record.f1 : before + record.f1;
            total.update(record.f1);
            return record;
        }
    }

    private static void latency(StreamExecutionEnvironment env, Work work) {
        double pace = (double) work.number("records_per_s") / env.getParallelism();
        long last = work.number("records") / work.number("keys");
        long warmingUp = (long) (pace * Work.WARM_UP_S);
        TypeInformation<Tuple3<Long, Long, Long>> type = new TypeHint<Tuple3<Long, Long, Long>>() {}.getTypeInfo();
        source(env, work, new Stamped(work.number("keys"), warmingUp), 0, pace, type)
                .keyBy(record -> record.f0, TypeInformation.of(Long.class))
                .map(new StampedSum())
                .returns(type)
                .sinkTo(new CheckSink<>((record, tally) -> {
                    if (record.f2 > 0) {
                        tally.latencies.merge((Clock.nanos() - record.f2) / Work.BUCKET_NS, 1L, Long::sum);
                    }
                    if (record.f1 >= last) {
                        tally.count++;
                        tally.checksum += record.f0;
                    }
                }));
    }

    static <T> DataStream<T> source(
            StreamExecutionEnvironment env,
            Work work,
            IndexSource.Maker<T> maker,
            long recordsPerMs,
            double recordsPerSecond,
            TypeInformation<T> type) {
        IndexSource<T> numbers = new IndexSource<>(work.number("records"), maker, recordsPerMs, Pace.steady(recordsPerSecond));
        return env.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers", type);
    }
}
