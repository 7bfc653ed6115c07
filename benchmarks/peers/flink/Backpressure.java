import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** source > keyBy > map > keyBy > map > sink with a payload of 100 bytes, one map slow, as in benchmarks/modes.py. */
final class Backpressure {
    private static final long POLL_MS = 200;

    private Backpressure() {}

    static final class Numbers implements IndexSource.Maker<Tuple3<Long, Long, String>> {
        private final long keys;
        private long index;

        Numbers(long keys) {
            this.keys = keys;
        }

        @Override
        public void seek(long index) {
            this.index = index;
        }

        @Override
        public Tuple3<Long, Long, String> next() {
            long number = index++;
            return Tuple3.of(number, number % keys, Payload.of(number));
        }
    }

    static void define(StreamExecutionEnvironment env, Work work) {
        long keys = work.number("keys");
        long nanos = (long) (work.decimal("record_ms") * 1e6);
        boolean middle = work.text("slow", "end").equals("middle");
        MapFunction<Tuple3<Long, Long, String>, Tuple3<Long, Long, String>> fast = record -> record;
        MapFunction<Tuple3<Long, Long, String>, Tuple3<Long, Long, String>> slow = record -> {
            LockSupport.parkNanos(nanos);
            return record;
        };
        TypeInformation<Tuple3<Long, Long, String>> type =
                new TypeHint<Tuple3<Long, Long, String>>() {}.getTypeInfo();
        TypeInformation<Long> keyType = TypeInformation.of(Long.class);
        Jobs.source(env, work, new Numbers(keys), 0, 0, type)
                .keyBy(record -> record.f1, keyType)
                .map(middle ? slow : fast)
                .returns(type)
                .keyBy(record -> record.f0 % keys, keyType)
                .map(middle ? fast : slow)
                .returns(type)
                .sinkTo(new CheckSink<>((record, tally) -> tally.count++));
    }

    private static final Pattern COMPLETED = Pattern.compile("\"completed\":([0-9]+)");

    /** Until enough checkpoints have completed or the time is over; prints what the REST interface says of them. */
    static void watch(JobClient job, Work work) throws Exception {
        String address = "http://localhost:" + work.number("rest_port") + "/jobs/" + job.getJobID() + "/checkpoints";
        HttpRequest request = HttpRequest.newBuilder(URI.create(address)).build();
        HttpClient client = HttpClient.newHttpClient();
        long until = System.nanoTime() + (long) (work.decimal("seconds") * 1e9);
        String answer;
        do {
            Thread.sleep(POLL_MS);
            answer = client.send(request, HttpResponse.BodyHandlers.ofString()).body();
        } while (System.nanoTime() < until && completed(answer) < work.number("enough"));
        System.out.println(answer);
        System.out.flush();
        Runtime.getRuntime().halt(0); // To cancel would wait for records that take long.
    }

    private static long completed(String answer) {
        Matcher matcher = COMPLETED.matcher(answer);
        return matcher.find() ? Long.parseLong(matcher.group(1)) : 0;
    }
}
