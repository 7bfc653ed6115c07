import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.java.tuple.Tuple4;

/** What holds records up, as in minirt/laboratory/workloads/parts.py. */
final class Throttles {
    private Throttles() {}

    /** Takes its time for each record, in subtasks and at times that its shape names. */
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
                    return subtask == 0 ? 10 : 1;
                case "slow_then_fast":
                    return passed < periodS ? 1 : 0;
                default:
                    return 1;
            }
        }
    }

    /** Lets so many records a second pass: a token bucket that holds a tenth of a second. */
    static final class Quota<T> extends RichMapFunction<T, T> {
        private final double rate;
        private double tokens;
        private long filledAt;

        Quota(double recordsPerSecond) {
            this.rate = recordsPerSecond;
        }

        @Override
        public void open(OpenContext context) {
            filledAt = System.nanoTime();
        }

        @Override
        public T map(T record) {
            while (tokens < 1) {
                long now = System.nanoTime();
                tokens = Math.min(tokens + (now - filledAt) / 1e9 * rate, Math.max(1, rate / 10));
                filledAt = now;
                if (tokens < 1) {
                    LockSupport.parkNanos((long) ((1 - tokens) / rate * 1e9));
                }
            }
            tokens--;
            return record;
        }
    }
}
