"""Snapshots that build on older files, in worker processes whose uploader is a thread."""

from __future__ import annotations

from pathlib import Path

import pytest

import minirt as rt
from minirt.state import segments

KEYS = 2 * segments.STRETCH_MIN
COUNT = 20 * KEYS


def slowly_changing(number: int) -> tuple[int, int]:
    """Every key once, and from then on only the first few."""
    return (number if number < KEYS else number % 7, 1)


@pytest.mark.parametrize(("mode", "interval"), [("aligned", "50ms"), ("uncoordinated", "5ms")])
def test_checkpoints_build_on_older_ones_and_are_read_as_one(
    mode: str, interval: str, tmp_path: Path
) -> None:
    """Also if the interval is shorter than it takes to store all state."""
    storage = f"{tmp_path}/chk"
    env = rt.Environment(parallelism=1)
    counts = (
        env.source(rt.SequenceSource(COUNT), uid="numbers")
        .map(slowly_changing)
        .key_by(lambda pair: pair[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1]), uid="counts")
    )
    counts.sink(rt.DiscardSink(), uid="out")
    checkpointing = rt.Checkpointing(storage, interval=interval, retain=1000, mode=mode)
    env.execute(checkpointing=checkpointing)
    checkpoints = list(rt.open_checkpoints(storage))
    assert any(checkpoint.parents for checkpoint in checkpoints)
    state = checkpoints[-1].operators["counts"].state()
    assert len(dict(state)) == state.entries == KEYS
    assert sum(count for _, (_, count) in state) == COUNT
