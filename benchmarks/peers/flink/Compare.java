import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.DoubleSupplier;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MetricOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.configuration.WebOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * The workloads of minirt/laboratory/workloads, for {@code minirt compare --peers flink}. Runs until its standard
 * input ends, and prints a line of JSON for each look at its counters.
 */
public final class Compare {
    private static final long LOOK_MS = 250;
    /** Buckets are those of minirt/monitoring/buckets.py. */
    private static final double UNIT_S = 0.001 / 128;

    private static final int STEPS = 32;
    private static final int BUCKETS = 30 * STEPS + 1;
    private static final long WATERMARKS_MS = 20;

    private static final LongAdder read = new LongAdder();
    private static final LongAdder written = new LongAdder();
    private static final AtomicLongArray latencies = new AtomicLongArray(BUCKETS);
    private static final List<DoubleSupplier> due = new CopyOnWriteArrayList<>();

    private Compare() {}

    public static void main(String[] arguments) throws Exception {
        Work work = new Work(arguments);
        int parallelism = (int) work.number("parallelism");
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration(work, parallelism));
        env.getConfig().enableObjectReuse();
        env.getConfig().setAutoWatermarkInterval(WATERMARKS_MS);
        env.enableCheckpointing(work.number("interval_ms"));
        env.getCheckpointConfig().setCheckpointTimeout(Duration.ofMinutes(10).toMillis());
        CompareJobs.define(env, work);
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

    /** A subtask of a source begins now, and keeps this pace. */
    static void follow(Pace pace) {
        long began = System.nanoTime();
        due.add(() -> pace.due((System.nanoTime() - began) / 1e9));
    }

    /** A record of a source, which was made just now or is due. */
    static void made() {
        read.increment();
    }

    /** A result came to a sink, whose newest record was made at that time, in nanoseconds since 1970. */
    static void arrived(long made) {
        written.increment();
        double units = Math.max((Clock.nanos() - made) / 1e9 / UNIT_S, 1);
        latencies.incrementAndGet(Math.min(BUCKETS - 1, (int) (Math.log(units) / Math.log(2) * STEPS)));
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
            double lag = due.stream().mapToDouble(DoubleSupplier::getAsDouble).sum() - read.sum();
            System.out.println(String.format(
                    java.util.Locale.ROOT,
                    "{\"at\": %.6f, \"read\": %d, \"written\": %d, \"lag\": %s, \"latencies\": [%s]}",
                    System.nanoTime() / 1e9,
                    read.sum(),
                    written.sum(),
                    due.isEmpty() ? "null" : Math.max(0, Math.round(lag)),
                    found));
        }
    }
}
