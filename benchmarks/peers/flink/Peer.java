import java.time.Duration;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.configuration.WebOptions;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Runs one of the jobs in this process, with the settings that suit Flink best; prints one line of JSON. */
public final class Peer {
    private Peer() {}

    public static void main(String[] arguments) throws Exception {
        Work work = new Work(arguments);
        int parallelism = (int) work.number("parallelism");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(
                parallelism, configuration(work, parallelism));
        env.getConfig().enableObjectReuse();
        env.setBufferTimeout(work.number("buffer_timeout_ms"));
        long interval = work.number("checkpoint_ms");
        if (interval > 0) {
            env.enableCheckpointing(interval);
            env.getCheckpointConfig().setCheckpointTimeout(Duration.ofMinutes(10).toMillis());
        }
        Jobs.define(env, work);
        if (work.name().equals("backpressure")) {
            Backpressure.watch(env.executeAsync(), work);
        } else {
            env.execute(work.name());
            Results.print();
        }
    }

    static Configuration configuration(Work work, int parallelism) {
        Configuration configuration = new Configuration();
        configuration.set(TaskManagerOptions.NUM_TASK_SLOTS, parallelism);
        configuration.set(StateBackendOptions.STATE_BACKEND, "hashmap");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + work.text("storage", ""));
        configuration.set(CheckpointingOptions.ENABLE_UNALIGNED, work.text("mode", "aligned").equals("unaligned"));
        configuration.set(WebOptions.CHECKPOINTS_HISTORY_SIZE, 1000);
        configuration.set(RestOptions.BIND_PORT, work.text("rest_port", "0"));
        return configuration;
    }
}
