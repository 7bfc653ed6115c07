"""Bad and late rows: nothing is dropped in silence.

A line that is no JSON goes to the side output `errors` of the source. A record that comes after the
watermark has passed it goes to the side output `late` of the process function.

Run it:  python examples/bad_and_late.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import minirt as rt

FILES = {
    "a.jsonl": [
        '{"time": 1000, "value": 1}',
        '{"time": 2000, "value": 2}',
        '{"time": 9000, "value": 3',  # the brace is missing
        '{"time": 9000, "value": 4}',
    ],
    "b.jsonl": [
        '{"time": 8500, "value": 5}',  # 0.5 s older than the newest before it: within the bound
        '{"time": 1500, "value": 6}',  # 7.5 s older: late
    ],
}


class OnTime(rt.Process):
    """Passes on what is on time, and sends the rest aside."""

    def process(self, record, ctx):
        if ctx.watermark is not None and ctx.timestamp <= ctx.watermark:
            ctx.side("late", record)
        else:
            yield record


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="bad-and-late-"))
    for name, lines in FILES.items():
        (folder / name).write_text("\n".join(lines) + "\n")

    env = rt.Environment("bad-and-late")
    values = env.source(
        rt.JsonlSource(folder, on_error="side_output"),
        uid="values",
        watermarks=rt.Watermarks.bounded("1s", timestamp="time"),
    )
    checked = values.process(OnTime(), uid="on-time")

    good, late, bad = rt.CollectSink(), rt.CollectSink(), rt.CollectSink()
    checked.sink(good, uid="good")
    checked.side_output("late").sink(late, uid="late")
    values.side_output("errors").sink(bad, uid="bad")
    # A watermark after every batch; by default one every 20 ms, which is more than this job takes.
    env.execute(options=rt.Options(limits=rt.Limits(watermark_interval_s=0)))

    print("good:", [row["value"] for row in good.rows])
    print("late:", [row["value"] for row in late.rows])
    print("bad: ", [row["text"] for row in bad.rows])


if __name__ == "__main__":
    main()
