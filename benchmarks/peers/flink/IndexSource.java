import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource.NumberSequenceSplit;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Records made from consecutive numbers, some hundred for each call of the runtime: so what it costs to ask a
 * source is not what is measured.
 */
final class IndexSource<T> implements Source<T, NumberSequenceSplit, java.util.Collection<NumberSequenceSplit>> {
    private static final int RECORDS_PER_POLL = 256;

    /** Makes records in the order of their numbers. It may give out the same object again and again. */
    interface Maker<T> extends Serializable {
        /** The next record to make is that of this number. */
        void seek(long index);

        T next();
    }

    private final Maker<T> maker;
    private final long recordsPerMs;
    private final Pace pace;
    private final NumberSequenceSource numbers;

    /**
     * @param recordsPerMs how many records of a subtask have the same event time; 0 for none
     * @param pace that of a subtask; null for as fast as it can
     */
    IndexSource(long records, Maker<T> maker, long recordsPerMs, Pace pace) {
        this.numbers = new NumberSequenceSource(0, records - 1);
        this.maker = maker;
        this.recordsPerMs = recordsPerMs;
        this.pace = pace;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SplitEnumerator<NumberSequenceSplit, java.util.Collection<NumberSequenceSplit>> createEnumerator(
            SplitEnumeratorContext<NumberSequenceSplit> context) {
        return numbers.createEnumerator(context);
    }

    @Override
    public SplitEnumerator<NumberSequenceSplit, java.util.Collection<NumberSequenceSplit>> restoreEnumerator(
            SplitEnumeratorContext<NumberSequenceSplit> context, java.util.Collection<NumberSequenceSplit> splits) {
        return numbers.restoreEnumerator(context, splits);
    }

    @Override
    public SimpleVersionedSerializer<NumberSequenceSplit> getSplitSerializer() {
        return numbers.getSplitSerializer();
    }

    @Override
    public SimpleVersionedSerializer<java.util.Collection<NumberSequenceSplit>> getEnumeratorCheckpointSerializer() {
        return numbers.getEnumeratorCheckpointSerializer();
    }

    @Override
    public SourceReader<T, NumberSequenceSplit> createReader(SourceReaderContext context) {
        return new Reader(context);
    }

    private final class Reader implements SourceReader<T, NumberSequenceSplit> {
        private final SourceReaderContext context;
        private final Queue<NumberSequenceSplit> waiting = new ArrayDeque<>();
        private CompletableFuture<Void> available = new CompletableFuture<>();
        private boolean noMore;
        private NumberSequenceSplit split;
        private long next;
        private long eventMs;
        private long leftInMs = recordsPerMs;
        private long startedAt;

        Reader(SourceReaderContext context) {
            this.context = context;
        }

        @Override
        public void start() {
            context.sendSplitRequest();
        }

        @Override
        public InputStatus pollNext(ReaderOutput<T> output) throws InterruptedException {
            if (split == null && !takeSplit()) {
                return noMore ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
            }
            long stop = Math.min(split.to() + 1, next + RECORDS_PER_POLL);
            if (pace != null) {
                stop = Math.min(stop, next + due());
            }
            for (; next < stop; next++) {
                if (recordsPerMs > 0) {
                    emitTimed(output);
                } else {
                    output.collect(maker.next());
                }
            }
            if (next > split.to()) {
                split = null;
                context.sendSplitRequest();
            }
            return InputStatus.MORE_AVAILABLE;
        }

        private void emitTimed(ReaderOutput<T> output) {
            if (leftInMs == 0) {
                output.emitWatermark(new Watermark(eventMs));
                eventMs++;
                leftInMs = recordsPerMs;
            }
            leftInMs--;
            output.collect(maker.next(), eventMs);
        }

        /** How many records are due by now; waits for a millisecond if there are none. */
        private long due() throws InterruptedException {
            double seconds = (System.nanoTime() - startedAt) / 1e9;
            long count = (long) pace.due(seconds) - (next - split.from());
            if (count <= 0) {
                Thread.sleep(1);
            }
            return Math.max(0, count);
        }

        private boolean takeSplit() {
            split = waiting.poll();
            if (split == null) {
                if (available.isDone()) {
                    available = new CompletableFuture<>();
                }
                return false;
            }
            Results.started();
            next = split.from();
            startedAt = System.nanoTime();
            maker.seek(next);
            return true;
        }

        @Override
        public List<NumberSequenceSplit> snapshotState(long checkpointId) {
            List<NumberSequenceSplit> left = new ArrayList<>(waiting);
            if (split != null && next <= split.to()) {
                left.add(new NumberSequenceSplit(split.splitId(), next, split.to()));
            }
            return left;
        }

        @Override
        public void notifyCheckpointComplete(long checkpointId) {
            Results.checkpointed(checkpointId);
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return available;
        }

        @Override
        public void addSplits(List<NumberSequenceSplit> splits) {
            waiting.addAll(splits);
            available.complete(null);
        }

        @Override
        public void notifyNoMoreSplits() {
            noMore = true;
            available.complete(null);
        }

        @Override
        public void close() {}
    }
}
