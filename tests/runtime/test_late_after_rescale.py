"""A key that was ahead of others when a checkpoint was taken: what was late for it stays late."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.data.keys import key_group, subtask_of_group
from minirt.protocol.ids import SubtaskId
from minirt.protocol.restore_options import RestoreOptions
from minirt.testing import TransactionalSink
from tests.runtime.stepped import SteppedJob

GROUPS, SPAN_MS = 8, 10
NAMES = [f"key {n}" for n in range(40)]


def owned_by(subtask: int) -> list[str]:
    owners = {name: subtask_of_group(key_group(name, GROUPS), 2, GROUPS) for name in NAMES}
    return [name for name, owner in owners.items() if owner == subtask][:3]


AHEAD, BEHIND = owned_by(0), owned_by(1)


def record(key: str, at: int) -> dict[str, Any]:
    return {"k": key, "at": at}


BATCHES = [
    [record(key, 5) for key in AHEAD + BEHIND],
    [record(AHEAD[0], 100)],
    [record(key, 6) for key in AHEAD],
]
"""The watermark passes the first span before the last of its records come."""


class InBatches(rt.Source):
    def plan_splits(self, parallelism: int) -> list[rt.Split]:
        return [rt.Split("all")]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(offset or 0)


class _Reader(rt.SplitReader):
    def __init__(self, offset: int) -> None:
        self.offset = offset

    def read(self) -> list[Any] | None:
        if self.offset == len(BATCHES):
            return None
        self.offset += 1
        return BATCHES[self.offset - 1]


class Spans(rt.KeyedProcess):
    """Counts the records of a key and a span until the watermark is there."""

    counts = rt.MapState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        end = record["at"] // SPAN_MS * SPAN_MS + SPAN_MS - 1
        if ctx.watermark is None or end > ctx.watermark:
            self.counts[end] = self.counts.get(end, 0) + 1
            ctx.set_timer(end)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield {"k": ctx.key, "n": self.counts.pop(timestamp), "end": timestamp + 1}


def job_of(sink: rt.Sink, parallelism: int, kind: str) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=GROUPS)
    marks = rt.Watermarks.monotonous(timestamp="at")
    keyed = env.source(InBatches(), uid="records", watermarks=marks, parallelism=1).key_by("k")
    if kind == "function":
        spans = keyed.process(Spans(), uid="spans")
    else:
        windows = keyed.window(rt.Tumbling(f"{SPAN_MS}ms"))
        spans = windows.aggregate(rt.Count("n"), uid="spans").map(
            lambda row: {
                "k": row["k"],
                "n": row["n"],
                "end": round(row["window_end"].timestamp() * 1000),
            }
        )
    spans.sink(sink, uid="out")
    return env


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("kind", ["windows", "function"])
def test_no_span_is_given_out_twice(kind: str, parallelism: int, tmp_path: Path) -> None:
    sink = TransactionalSink()
    job = SteppedJob(job_of(sink, 2, kind), tmp_path, watermarks="restored")
    for _ in range(60):
        job._turn(lambda subtask: subtask.id.vertex == 0 or _is_on_its_way(subtask))
    manifest = job.checkpoint()
    assert manifest.in_flight, "the late records were overtaken"
    assert {row["k"] for row in sink.rows} == set(AHEAD), "their span was over"
    restore = RestoreOptions("latest")
    form = job_of(sink, parallelism, kind)
    SteppedJob(form, tmp_path, restore=restore, watermarks="restored").finish()
    first = sorted((row["k"], row["n"]) for row in sink.rows if row["end"] == SPAN_MS)
    assert first == sorted((key, 1) for key in AHEAD + BEHIND)


def _is_on_its_way(subtask: Any) -> bool:
    """Whether it is the one that gets ahead, until it is there."""
    return subtask.id == SubtaskId(1, 0) and (subtask.metrics.watermark or 0) < SPAN_MS
