import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** source > keyBy > map > keyBy > slow map > sink with a payload of 100 bytes, as in benchmarks/modes.py. */
final class Backpressure {
    private Backpressure() {}

    static final class Numbers implements IndexSource.Maker<Tuple3<Long, Long, String>> {
        private final long keys;
        private final String payload = "x".repeat(100);
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
            return Tuple3.of(number, number % keys, payload);
        }
    }

    static void define(StreamExecutionEnvironment env, Work work) {
        long keys = work.number("keys");
        long nanos = (long) (work.decimal("record_ms") * 1e6);
        TypeInformation<Tuple3<Long, Long, String>> type =
                new TypeHint<Tuple3<Long, Long, String>>() {}.getTypeInfo();
        TypeInformation<Long> keyType = TypeInformation.of(Long.class);
        Jobs.source(env, work, new Numbers(keys), 0, 0, type)
                .keyBy(record -> record.f1, keyType)
                .map(record -> record)
                .returns(type)
                .keyBy(record -> record.f0 % keys, keyType)
                .map(record -> {
                    LockSupport.parkNanos(nanos);
                    return record;
                })
                .returns(type)
                .sinkTo(new CheckSink<>((record, tally) -> tally.count++));
    }

    /** Lets the job run for a while, and prints what its REST interface says of its checkpoints. */
    static void watch(JobClient job, Work work) throws Exception {
        Thread.sleep((long) (work.decimal("seconds") * 1000));
        String address = "http://localhost:" + work.number("rest_port") + "/jobs/" + job.getJobID() + "/checkpoints";
        HttpResponse<String> answer = HttpClient.newHttpClient()
                .send(HttpRequest.newBuilder(URI.create(address)).build(), HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.body());
        System.out.flush();
        Runtime.getRuntime().halt(0); // To cancel would wait for records that take long.
    }
}
