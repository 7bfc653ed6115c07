"""Writes the picture of pictures.md, from a simulated job.

Run it after changing how pictures are drawn:  python docs/make_pictures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from blocks import update_files

import minirt as rt
from minirt.pictures.svg import standalone
from minirt.pictures.timeline import timeline
from minirt.testing import Faults, TransactionalSink, simulate

TARGET = Path(__file__).parent / "images/checkpoint.svg"
SEED, CHECKPOINT = 35, 6


def picture() -> str:
    """A checkpoint of a job with two shuffles, whose barriers wait in queues."""
    env = rt.Environment("sums", parallelism=2)
    numbers = env.source(rt.SequenceSource(400), uid="numbers", name="numbers")
    sums = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b, uid="sums", name="sums")
    plain = sums.rebalance().map(lambda n: n, uid="out", name="plain")
    plain.sink(TransactionalSink(), uid="sink", name="out")
    checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode="aligned")
    result = simulate(
        env, seed=SEED, checkpointing=checkpointing, faults=Faults.none(), trace=True
    ).check()
    [trace] = [trace for trace in result.traces if trace.checkpoint_id == CHECKPOINT]
    return standalone(timeline(trace)) + "\n"


def main() -> int:
    """Write it, or with `--check` on the command line only look; the exit status."""
    return update_files({TARGET: picture()})


if __name__ == "__main__":
    sys.exit(main())
