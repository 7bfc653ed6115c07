import java.time.Instant;

/** The wall clock. */
final class Clock {
    private Clock() {}

    static long nanos() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }
}
