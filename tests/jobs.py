"""The job that tests of connectors run: rows `id`, `name` into a sink. And sources that do not hurry."""

from __future__ import annotations

import time
from typing import Any

import minirt as rt
from minirt.io import Sink


def paced_numbers(env: rt.Environment, **settings: Any) -> rt.Stream[int]:
    """Numbers without end, a thousand a second: others leave no core to whoever looks at their job."""
    times = rt.Watermarks.monotonous(timestamp=lambda number: number)
    source = rt.SequenceSource.endless()
    return env.source(source, uid="numbers", watermarks=times, speed=1.0, **settings)


def named_rows(sink: Sink, records: int, pause_s: float = 0.0, *, job: str) -> rt.Environment:
    """A job of two subtasks that writes so many records `{"id": 7, "name": "row 7"}`."""

    def named(number: int) -> dict[str, Any]:
        time.sleep(pause_s)
        return {"id": number, "name": f"row {number}"}

    env = rt.Environment(job, parallelism=2)
    numbers = env.source(rt.SequenceSource(records, splits=4), uid="numbers")
    numbers.map(named, uid="named").sink(sink, uid="out")
    return env


def updated_rows(sink: Sink, records: int, pause_ms: int, *, keys: int, job: str) -> rt.Environment:
    """A job of two subtasks that writes rows as `named_rows`, with so many ids in turn: names only grow.

    The source waits between records, so that checkpoints need not wait for a batch.
    """

    def update(number: int) -> dict[str, Any]:
        return {"id": number % keys, "name": f"row {number:06}"}

    env = rt.Environment(job, parallelism=2)
    numbers = env.source(
        rt.SequenceSource(records, splits=1),
        uid="numbers",
        parallelism=1,
        watermarks=rt.Watermarks.monotonous(timestamp=lambda number: number * pause_ms),
        speed=1,
    )
    updates = (
        numbers.map(update, uid="update").key_by("id").reduce(lambda old, new: new, uid="newest")
    )
    updates.sink(sink, uid="out")
    return env
