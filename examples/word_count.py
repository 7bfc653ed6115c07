"""Word count: lines of text in, the final count of every word out.

Run it:  python examples/word_count.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import minirt as rt

TEXT = ["the cat and the dog", "the dog sleeps", "and the cat sleeps too"]


class Count(rt.KeyedProcess):
    """Counts a word, and tells the result when all input has been read."""

    count = rt.ValueState(default=0)

    def process(self, record, ctx):
        self.count.value += 1
        # Event time ends with the input: timers that are still pending fire then.
        ctx.set_timer(2**62)

    def on_timer(self, timestamp, ctx):
        yield {"word": ctx.key, "count": self.count.value}


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="word-count-"))
    (folder / "text.jsonl").write_text("".join(json.dumps({"line": line}) + "\n" for line in TEXT))

    env = rt.Environment("word-count", parallelism=2)
    lines = env.source(rt.JsonlSource(folder / "text.jsonl"), uid="lines")
    words = lines.flat_map(lambda record: record["line"].split(), uid="words")
    counts = words.key_by(lambda word: word).process(Count(), uid="count")
    counts.sink(rt.JsonlSink(folder / "out"), uid="out")
    env.execute()

    rows = [
        json.loads(line)
        for file in (folder / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    for row in sorted(rows, key=lambda row: (-row["count"], row["word"])):
        print(row["count"], row["word"])


if __name__ == "__main__":
    main()
