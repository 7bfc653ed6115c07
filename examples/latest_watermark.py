"""The latest watermark, stamped on each record: what a crash changes, and two ways out.

An unaligned checkpoint holds records in flight. After a restore, operators process these first, and the
sources measure watermarks anew only behind them: so these records find no watermark. An operator that
depends on it either keeps the watermark in its own state, by key, or has minirt restore it.

Run it:  python examples/latest_watermark.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import minirt as rt


def itself(number: int) -> int:
    return number


def sensor(number: int) -> int:
    return number % 4


class Stamp(rt.KeyedProcess):
    """Slow, so that records pile up before it; it fails once, after the second checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self, ctx):
        return ctx.watermark

    def process(self, number, ctx):
        time.sleep(0.001)
        failed = self.folder / "failed"
        if not failed.exists() and len(list(self.folder.glob("*/*.manifest"))) >= 2:
            failed.touch()
            raise RuntimeError("out of order, please wait")
        yield (number, self.latest(ctx))


class StampFromState(Stamp):
    """State knows the watermark that its key saw last, also after a restore."""

    seen = rt.ValueState()

    def latest(self, ctx):
        if ctx.watermark is not None:
            self.seen.value = ctx.watermark
        return self.seen.value


def stamped(stamp: type[Stamp], watermarks: str) -> str:
    """Whether the watermark, once it was known, was known for each record."""
    folder = Path(tempfile.mkdtemp(prefix="latest-watermark-"))
    env, out = rt.Environment("stamps"), rt.CollectSink()
    every_number = rt.Watermarks.monotonous(timestamp=itself)
    readings = env.source(rt.SequenceSource(1000, splits=200), watermarks=every_number)
    readings.key_by(sensor).process(stamp(folder)).sink(out)
    env.execute(
        checkpointing=rt.Checkpointing(folder, "200ms", "unaligned", watermarks=watermarks),
        options=rt.Options(limits=rt.Limits(watermark_interval_s=0)),
    )
    known = [watermark is not None for _, watermark in out.rows]
    return "known" if all(known[known.index(True) :]) else "forgotten"


def main() -> None:
    print("regenerated:", stamped(Stamp, "regenerated"))
    print("from state: ", stamped(StampFromState, "regenerated"))
    print("restored:   ", stamped(Stamp, "restored"))


if __name__ == "__main__":
    main()
