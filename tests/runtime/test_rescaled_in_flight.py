"""Checkpoints with full queues, restored at another parallelism, in another mode, in another shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.protocol.manifest import Manifest
from minirt.run_settings import RestoreOptions
from minirt.testing import TransactionalSink
from tests.runtime.stepped import SteppedJob

COUNT = 400
SPLITS = 7
LATEST = RestoreOptions("latest")

Shape = Callable[[rt.Stream], rt.Stream]


def env_of(shape: Shape, sink: rt.Sink, parallelism: int) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=32)
    source = env.source(rt.SequenceSource(COUNT, splits=SPLITS), uid="numbers")
    shape(source).sink(sink, uid="out", chain=False)
    return env


class Number(rt.KeyedProcess):
    """Emits each record with its number among those of its key."""

    count = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield (ctx.key, self.count.value, record)


def skewed(n: int) -> int:
    """Nine of ten records have the same key."""
    return n if n % 10 == 0 else 0


def choose(key: int, parallelism: int) -> int:
    return (key * 5 + 1) % parallelism


SHAPES: dict[str, tuple[Shape, int]] = {
    "keyed": (lambda s: s.key_by(lambda n: n % 50).process(Number(), uid="number"), 1),
    "skewed": (lambda s: s.key_by(skewed).process(Number(), uid="number"), 1),
    "rebalance": (lambda s: s.rebalance().map(lambda n: n, uid="m"), 1),
    "rescale": (lambda s: s.rescale().map(lambda n: n, uid="m"), 1),
    "custom": (lambda s: s.partition_custom(choose, lambda n: n).map(lambda n: n, uid="m"), 1),
    "forward": (lambda s: s.map(lambda n: n, uid="m", chain=False), 1),
    "twice": (lambda s: s.union(s).map(lambda n: n, uid="m"), 2),
    "both ways": (lambda s: s.rebalance().union(s.key_by(skewed)).map(lambda n: n, uid="m"), 2),
    "two inputs": (
        lambda s: s.key_by(skewed).connect(s.key_by(skewed)).process(Pair(), uid="pair"),
        2,
    ),
}
"""And how often each record comes out."""


class Pair(rt.KeyedCoProcess):
    def process_left(self, record: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield record

    def process_right(self, record: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield record


def numbers(rows: Iterable[Any]) -> Counter[int]:
    return Counter(row[-1] if isinstance(row, tuple) else row for row in rows)


def channels_of(manifest: Manifest) -> set[str]:
    return {data.link for captured in manifest.in_flight for data in captured.channels}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("before", "after"), [(7, 3), (3, 7), (2, 2)])
def test_nothing_is_lost_or_repeated(shape: str, before: int, after: int, tmp_path: Path) -> None:
    sink = TransactionalSink()
    build, times = SHAPES[shape]
    job = SteppedJob(env_of(build, sink, before), tmp_path)
    job.clog()
    manifest = job.checkpoint()
    assert len(channels_of(manifest)) == len(job.graph.links), "every link holds something"
    SteppedJob(env_of(build, sink, after), tmp_path, restore=LATEST).finish()
    assert numbers(sink.rows) == Counter(dict.fromkeys(range(COUNT), times))
