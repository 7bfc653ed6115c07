import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Adds up what the check of a case needs and keeps nothing else. */
final class CheckSink<T> implements Sink<T> {
    /** Looks at one result. */
    interface Check<T> extends Serializable {
        void see(T result, Tally tally);
    }

    /** What one subtask has seen. */
    static final class Tally {
        long count;
        long checksum;
        final Map<Long, Long> latencies = new HashMap<>();
    }

    private final Check<T> check;

    CheckSink(Check<T> check) {
        this.check = check;
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext context) {
        Tally tally = new Tally();
        return new SinkWriter<T>() {
            @Override
            public void write(T result, Context context) {
                check.see(result, tally);
            }

            @Override
            public void flush(boolean endOfInput) {
                if (endOfInput) {
                    Results.ended(tally.count, tally.checksum, tally.latencies);
                }
            }

            @Override
            public void close() {}
        };
    }
}
