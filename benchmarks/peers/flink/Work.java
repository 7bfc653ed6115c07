import java.util.HashMap;
import java.util.Map;

/** What to run, from arguments such as {@code work=keyed-sum records=1000000}; as in benchmarks/workload.py. */
final class Work {
    /** Multiplying by it scatters consecutive numbers over the keys. */
    static final long SPREAD = 2654435761L;

    static final long RECORDS_PER_WINDOW = 1_000_000;

    static final long WINDOW_MS = 1000;

    static final long BUCKET_NS = 50_000;

    static final long WARM_UP_S = 2;

    private final Map<String, String> arguments = new HashMap<>();

    Work(String[] arguments) {
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            this.arguments.put(pair[0], pair[1]);
        }
    }

    String name() {
        return arguments.get("work");
    }

    long number(String name) {
        return Long.parseLong(arguments.get(name));
    }

    String text(String name, String otherwise) {
        return arguments.getOrDefault(name, otherwise);
    }

    double decimal(String name) {
        return Double.parseDouble(arguments.get(name));
    }
}
