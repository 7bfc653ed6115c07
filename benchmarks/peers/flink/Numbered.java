import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple4;

/**
 * The records of minirt/laboratory/workloads/parts.py: id, key, when it was made in nanoseconds since 1970, text. The
 * id is the number of its split in the highest bits, and below the number of the record in that split.
 */
final class Numbered implements IndexSource.Maker<Tuple4<Long, Long, Long, String>> {
    static final TypeInformation<Tuple4<Long, Long, Long, String>> TYPE =
            new TypeHint<Tuple4<Long, Long, Long, String>>() {}.getTypeInfo();

    private static final long RECORDS = (long) 1e15;
    private static final int SPLIT_BITS = 40;
    private static final int RECORDS_PER_STAMP = 128;
    private static final int PIECE_CHARS = 100;

    private final long keys;
    private final long hotBelow;
    private final int chars;
    private final int splits;
    private final Pace pace;
    private long firstId;
    private long number;
    private long began;
    private long made;

    private Numbered(Work work, int splits, Pace pace) {
        this.keys = work.number("keys");
        this.hotBelow = work.number("hot_per_mille");
        this.chars = (int) work.number("payload_chars");
        this.splits = splits;
        this.pace = pace;
    }

    /** An endless source of them, one split a subtask. */
    static IndexSource<Tuple4<Long, Long, Long, String>> source(Work work) {
        int splits = (int) work.number("parallelism");
        Pace pace = Pace.of(work.text("pace", ""), splits);
        return new IndexSource<>(RECORDS, new Numbered(work, splits, pace), 0, pace);
    }

    static long numberInSplit(long id) {
        return id & ((1L << SPLIT_BITS) - 1);
    }

    static long firstIdOfSplit(long id) {
        return id >> SPLIT_BITS << SPLIT_BITS;
    }

    static long keyOf(long number, long keys, long hotBelow) {
        long scattered = number * Work.SPREAD % (1L << 32);
        return scattered % 1000 < hotBelow ? 0 : scattered / 1000 % keys;
    }

    @Override
    public void seek(long index) {
        number = 0;
        firstId = Math.round((double) index * splits / RECORDS) << SPLIT_BITS;
        began = Clock.nanos();
        if (pace != null) {
            Compare.follow(pace);
        }
    }

    @Override
    public Tuple4<Long, Long, Long, String> next() {
        if (pace != null) {
            made = began + (long) (pace.when(number + 1) * 1e9);
        } else if (number % RECORDS_PER_STAMP == 0) {
            made = Clock.nanos();
        }
        Compare.made();
        long key = keyOf(number, keys, hotBelow);
        return Tuple4.of(firstId + number, key, made, text(number++));
    }

    private String text(long number) {
        if (chars == PIECE_CHARS) {
            return Payload.of(number);
        }
        int pieces = (chars + PIECE_CHARS - 1) / PIECE_CHARS;
        StringBuilder whole = new StringBuilder();
        for (int piece = 0; piece < pieces; piece++) {
            whole.append(Payload.of(number * pieces + piece));
        }
        return whole.substring(0, chars);
    }
}
