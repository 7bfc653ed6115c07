import java.io.Serializable;

/**
 * When records are due: stretches of so many seconds at so many records a second, the last of which goes on for
 * ever; as steps() of minirt/laboratory/workloads/parts.py.
 */
final class Pace implements Serializable {
    private final double[] starts;
    private final double[] totals;
    private final double[] rates;

    private Pace(double[] seconds, double[] rates) {
        this.rates = rates;
        this.starts = new double[rates.length];
        this.totals = new double[rates.length];
        for (int place = 1; place < rates.length; place++) {
            starts[place] = starts[place - 1] + seconds[place - 1];
            totals[place] = totals[place - 1] + seconds[place - 1] * rates[place - 1];
        }
    }

    /**
     * That of one of so many subtasks, from the text of all together, such as {@code 12:800,12:5000,1:800}; null, which
     * is as fast as there is room, from an empty text.
     */
    static Pace of(String text, int subtasks) {
        if (text.isEmpty()) {
            return null;
        }
        String[] stretches = text.split(",");
        double[] seconds = new double[stretches.length];
        double[] rates = new double[stretches.length];
        for (int place = 0; place < stretches.length; place++) {
            String[] pair = stretches[place].split(":");
            seconds[place] = Double.parseDouble(pair[0]);
            rates[place] = Double.parseDouble(pair[1]) / subtasks;
        }
        return new Pace(seconds, rates);
    }

    /** The same all the time; null for 0. */
    static Pace steady(double recordsPerSecond) {
        return recordsPerSecond == 0 ? null : new Pace(new double[] {1}, new double[] {recordsPerSecond});
    }

    /** How many records are due after so many seconds. */
    double due(double seconds) {
        int place = rates.length - 1;
        while (place > 0 && starts[place] > seconds) {
            place--;
        }
        return totals[place] + Math.max(0, seconds - starts[place]) * rates[place];
    }

    /** After how many seconds so many records are due. */
    double when(double records) {
        int place = rates.length - 1;
        while (place > 0 && totals[place] >= records) {
            place--;
        }
        return starts[place] + Math.max(0, records - totals[place]) / rates[place];
    }
}
