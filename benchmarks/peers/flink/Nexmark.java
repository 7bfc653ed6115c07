import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.FormatDescriptor;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs one query of NexMark in this process: statements of a file, between lines of dashes; the last is the
 * query. Prints lines of JSON as the other jobs do.
 */
public final class Nexmark {
    private Nexmark() {}

    public static void main(String[] arguments) throws Exception {
        Work work = new Work(arguments);
        int parallelism = (int) work.number("parallelism");
        Configuration configuration = new Configuration();
        configuration.set(TaskManagerOptions.NUM_TASK_SLOTS, parallelism);
        configuration.set(StateBackendOptions.STATE_BACKEND, "hashmap");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + work.text("storage", ""));
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        env.getConfig().enableObjectReuse();
        if (work.number("checkpoint_ms") > 0) {
            env.enableCheckpointing(work.number("checkpoint_ms"));
        }
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        // What nexmark/nexmark sets: aggregates wait for many records, and distinct ones are split up.
        Map.of(
                        "table.exec.mini-batch.enabled", "true",
                        "table.exec.mini-batch.allow-latency", "2s",
                        "table.exec.mini-batch.size", "50000",
                        "table.optimizer.distinct-agg.split.enabled", "true")
                .forEach(tables.getConfig()::set);
        String[] statements = Files.readString(Path.of(work.text("sql", ""))).split("\n---\n");
        for (int place = 0; place < statements.length - 1; place++) {
            tables.executeSql(statements[place]);
        }
        Table query = tables.sqlQuery(statements[statements.length - 1]);
        query.insertInto(sink(work.text("folders", ""), work.text("out", ""))).execute().await();
        Results.ended(0, 0, Map.of());
        Results.print();
    }

    private static TableDescriptor sink(String folders, String out) {
        if (folders.isEmpty()) {
            return TableDescriptor.forConnector("blackhole").build();
        }
        return TableDescriptor.forConnector("filesystem")
                .option("path", "file://" + out)
                .format(FormatDescriptor.forFormat("json").build())
                .partitionedBy(folders.split(","))
                .build();
    }
}
