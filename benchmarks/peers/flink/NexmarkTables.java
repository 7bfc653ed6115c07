import java.util.Collection;
import java.util.List;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.LookupFunction;

/** The tables of NexMark's queries: its events; and, with a number of keys, the side input that q13 looks up. */
public final class NexmarkTables implements DynamicTableSourceFactory {
    private static final ConfigOption<String> FOLDER = option("folder").stringType().defaultValue("");
    private static final ConfigOption<Long> EVENTS = option("events").longType().defaultValue(0L);
    private static final ConfigOption<Integer> BLOCK = option("block-events").intType().defaultValue(0);
    private static final ConfigOption<Integer> SPLITS = option("splits").intType().defaultValue(0);
    private static final ConfigOption<Integer> KEYS = option("keys").intType().defaultValue(0);

    private static ConfigOptions.OptionBuilder option(String name) {
        return ConfigOptions.key(name);
    }

    @Override
    public String factoryIdentifier() {
        return "nexmark";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(FOLDER, EVENTS, BLOCK, SPLITS, KEYS);
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        ReadableConfig options = FactoryUtil.createTableFactoryHelper(this, context).getOptions();
        if (options.get(KEYS) > 0) {
            return new Side(options.get(KEYS));
        }
        NexmarkEvents maker = new NexmarkEvents(options.get(FOLDER), options.get(BLOCK), options.get(SPLITS));
        return new Events(options.get(EVENTS), maker);
    }

    private record Events(long events, NexmarkEvents maker) implements ScanTableSource {
        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return SourceProvider.of(new IndexSource<RowData>(events, maker, 0, null));
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "events";
        }
    }

    private record Side(int keys) implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new SideLookup(keys));
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "side input";
        }
    }

    /** All rows of the side input are in memory: their value is their key as text. */
    public static final class SideLookup extends LookupFunction {
        private final int keys;
        private transient RowData[] rows;

        SideLookup(int keys) {
            this.keys = keys;
        }

        @Override
        public void open(org.apache.flink.table.functions.FunctionContext context) {
            rows = new RowData[keys];
            for (int key = 0; key < keys; key++) {
                rows[key] = GenericRowData.of((long) key, StringData.fromString(Integer.toString(key)));
            }
        }

        @Override
        public Collection<RowData> lookup(RowData key) {
            long wanted = key.getLong(0);
            return wanted >= 0 && wanted < keys ? List.of(rows[(int) wanted]) : List.of();
        }
    }
}
