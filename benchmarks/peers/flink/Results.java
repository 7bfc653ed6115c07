import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/** What the subtasks of the job, all in this process, have seen; printed at the end as one line of JSON. */
final class Results {
    private static long endedAt;
    private static long count;
    private static long checksum;
    private static final Map<Long, Long> latencies = new TreeMap<>();
    private static final Set<Long> checkpoints = ConcurrentHashMap.newKeySet();

    private Results() {}

    /** A source makes its first record. */
    static synchronized void started() {
        System.out.println(String.format("{\"started_at\": %.9f}", seconds(System.nanoTime())));
        System.out.flush();
    }

    static void checkpointed(long id) {
        checkpoints.add(id);
    }

    /** A sink has seen its last record. */
    static synchronized void ended(long sinkCount, long sinkChecksum, Map<Long, Long> sinkLatencies) {
        endedAt = System.nanoTime();
        count += sinkCount;
        checksum += sinkChecksum;
        sinkLatencies.forEach((bucket, times) -> latencies.merge(bucket, times, Long::sum));
    }

    static synchronized void print() {
        StringBuilder buckets = new StringBuilder();
        latencies.forEach((bucket, times) ->
                buckets.append(buckets.length() == 0 ? "" : ", ").append("[" + bucket + ", " + times + "]"));
        System.out.println(String.format(
                "{\"ended_at\": %.9f, \"count\": %d, \"checksum\": %d, \"checkpoints\": %d, \"latencies\": [%s]}",
                seconds(endedAt), count, checksum, checkpoints.size(), buckets));
    }

    /** The clock of System.nanoTime() is Python's time.monotonic(). */
    private static double seconds(long nanos) {
        return nanos / 1e9;
    }
}
