import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryStringData;

/**
 * The events of NexMark from a file of blocks, as benchmarks/nexmark/files.py writes it. Split i of n has every
 * n-th block, beginning with the i-th, so that all splits go through event time side by side.
 */
final class NexmarkEvents implements IndexSource.Maker<RowData> {
    /** How each column of a person, an auction and a bid is stored: a number, a time or a text. */
    private static final String[] COLUMNS = {"NTTTTTMT", "NTTNNMMNNT", "NNNTTMT"};

    private static final int KINDS = COLUMNS.length;

    private final String folder;
    private final int blockEvents;
    private final int splits;

    private transient long[] starts;
    private transient RandomAccessFile file;
    private transient byte[] bytes;
    private transient ByteBuffer block;
    private transient int number;
    private transient int row;
    private transient int[] types;
    private transient int[] next;
    private transient int[] counts;
    private transient int[][] places;

    NexmarkEvents(String folder, int blockEvents, int splits) {
        this.folder = folder;
        this.blockEvents = blockEvents;
        this.splits = splits;
    }

    /** Records are numbered split by split, and IndexSource deals them in runs of equal length. */
    @Override
    public void seek(long index) {
        try {
            open();
            long blocks = (starts.length - 1) / splits;
            long within = index % (blocks * blockEvents);
            number = (int) (within / blockEvents * splits + index / (blocks * blockEvents));
            load();
            for (int skipped = (int) (within % blockEvents); skipped > 0; skipped--) {
                next();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public RowData next() {
        if (row == blockEvents) {
            number += splits;
            try {
                load();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        int type = types[row++];
        GenericRowData event = new GenericRowData(KINDS + 2);
        GenericRowData own = read(type, next[type]++);
        event.setField(0, type);
        event.setField(1 + type, own);
        event.setField(KINDS + 1, own.getField(COLUMNS[type].indexOf('M')));
        return event;
    }

    private void open() throws IOException {
        ByteBuffer index = ByteBuffer.wrap(Files.readAllBytes(Path.of(folder, "events.index")));
        starts = new long[index.remaining() / Long.BYTES];
        index.asLongBuffer().get(starts);
        file = new RandomAccessFile(Path.of(folder, "events.blocks").toFile(), "r");
        types = new int[blockEvents];
        next = new int[KINDS];
        counts = new int[KINDS];
        places = new int[KINDS][];
    }

    private void load() throws IOException {
        // A block of its own: texts of rows that are kept point into it.
        bytes = new byte[(int) (starts[number + 1] - starts[number])];
        file.seek(starts[number]);
        file.readFully(bytes);
        block = ByteBuffer.wrap(bytes);
        block.asIntBuffer().get(types);
        int place = blockEvents * Integer.BYTES;
        for (int kind = 0; kind < KINDS; kind++) {
            counts[kind] = block.getInt(place);
            place += Integer.BYTES;
            places[kind] = new int[COLUMNS[kind].length()];
            for (int column = 0; column < places[kind].length; column++) {
                places[kind][column] = place;
                place += COLUMNS[kind].charAt(column) == 'T' ? textBytes(place, counts[kind]) : counts[kind] * Long.BYTES;
            }
            next[kind] = 0;
        }
        row = 0;
    }

    private int textBytes(int place, int count) {
        return (count + 1) * Integer.BYTES + block.getInt(place + count * Integer.BYTES);
    }

    private GenericRowData read(int kind, int at) {
        String columns = COLUMNS[kind];
        GenericRowData found = new GenericRowData(columns.length());
        for (int column = 0; column < columns.length(); column++) {
            int place = places[kind][column];
            switch (columns.charAt(column)) {
                case 'N' -> found.setField(column, block.getLong(place + at * Long.BYTES));
                case 'M' -> found.setField(
                        column, TimestampData.fromEpochMillis(block.getLong(place + at * Long.BYTES)));
                default -> {
                    int first = block.getInt(place + at * Integer.BYTES);
                    int last = block.getInt(place + (at + 1) * Integer.BYTES);
                    int texts = place + (counts[kind] + 1) * Integer.BYTES;
                    found.setField(column, BinaryStringData.fromBytes(bytes, texts + first, last - first));
                }
            }
        }
        return found;
    }
}
