/** The texts of minirt/cli/bench_payload.py: they differ, and no compression makes much of them. */
final class Payload {
    private static final int CHARS = 100;
    private static final int TEXTS = 1 << 16;
    private static final String ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    private static final String CHARACTERS = characters();

    private Payload() {}

    static String of(long number) {
        int start = (int) (number * 40503L % TEXTS);
        return CHARACTERS.substring(start, start + CHARS);
    }

    private static String characters() {
        StringBuilder drawn = new StringBuilder();
        long state = 42;
        for (int place = 0; place < TEXTS + CHARS; place++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            drawn.append(ALPHABET.charAt((int) (state >>> 58)));
        }
        return drawn.toString();
    }
}
