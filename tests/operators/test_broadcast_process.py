"""Broadcast state: the same in every subtask, written by broadcast records alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import minirt as rt


class Sums(rt.BroadcastProcess):
    """Adds up what is broadcast, and tells each record of the left how much that is by now."""

    added = rt.BroadcastState()
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield ("left", record, self.count.value, sum(self.added.values()))

    def process_broadcast(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        split = f"split {record[1]}"
        self.added[split] = self.added.get(split, 0) + 1
        yield ("right", record, ctx.subtask, sum(self.added.values()))


class Writes(Sums):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.added["x"] = 1
        yield record


class Reads(Sums):
    def process_broadcast(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        yield self.count.value


class SetsTimer(Sums):
    def process_broadcast(self, record: Any, ctx: Any) -> Iterable[Any]:
        ctx.set_timer(7)
        return ()


class AsksForKey(Sums):
    def process_broadcast(self, record: Any, ctx: Any) -> Iterable[Any]:
        return [ctx.key]


@pytest.mark.parametrize(
    ("process", "said"),
    [
        (Writes, "'added' is read-only but in process_broadcast"),
        (Reads, "a broadcast record has no key"),
        (SetsTimer, "a broadcast record has no key"),
        (AsksForKey, "a broadcast record has no key"),
    ],
)
def test_neither_side_does_what_only_the_other_can(process: Any, said: str) -> None:
    env = rt.Environment()
    left = env.source(rt.CollectionSource([("l", 0, 1)]), uid="left")
    right = env.source(rt.CollectionSource([("r", 0, 1)]), uid="right")
    keyed = left.key_by(lambda record: record[2]).connect(right.broadcast())
    keyed.process(process()).sink(rt.DiscardSink())
    with pytest.raises(rt.JobFailedError, match=said):
        env.execute(runner="inline")


class OfOneKey(rt.KeyedProcess):
    rules = rt.BroadcastState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield record


def test_what_would_not_be_broadcast_is_refused() -> None:
    env = rt.Environment()
    left = env.source(rt.CollectionSource([1]), uid="left")
    right = env.source(rt.CollectionSource([2]), uid="right")

    def key(record: int) -> int:
        return record

    with pytest.raises(rt.ConfigurationError, match="or broadcast\\(\\) if each subtask is to get"):
        left.key_by(key).connect(right).process(Sums())
    with pytest.raises(rt.ConfigurationError, match="name the key of each side"):
        left.connect(right).key_by(key)  # type: ignore[call-overload]
    with pytest.raises(rt.ConfigurationError, match="dealt twice, by broadcast and then by hash"):
        left.connect(right.broadcast()).key_by(key, key)
    with pytest.raises(rt.ConfigurationError, match="expected BroadcastProcess"):
        left.key_by(key).connect(right.broadcast()).process(OfOneKey())  # type: ignore[arg-type]
    with pytest.raises(rt.ConfigurationError, match="make it a BroadcastProcess"):
        left.key_by(key).process(OfOneKey())
    with pytest.raises(rt.ConfigurationError, match="dealt twice"):
        left.key_by(key).connect(right.broadcast().rebalance())


def test_the_plan_says_why_no_barrier_overtakes() -> None:
    env = rt.Environment(parallelism=2)
    left = env.source(rt.CollectionSource([("l", 0, 1)]), uid="left")
    right = env.source(rt.CollectionSource([("r", 0, 1)]), uid="right")
    keyed = left.connect(right.broadcast()).key_by(lambda record: record[2])
    keyed.process(Sums(), uid="sums").sink(rt.DiscardSink())
    assert (
        "not overtaken by barriers: at a checkpoint all subtasks have seen the same" in env.plan()
    )


def test_each_subtask_sees_all_that_is_broadcast() -> None:
    env, out = rt.Environment(parallelism=3), rt.CollectSink()
    left = env.source(rt.CollectionSource([("l", 0, 1)]), uid="left", parallelism=1)
    right = env.source(rt.CollectionSource([("r", 0, n) for n in range(4)]), uid="r", parallelism=1)
    keyed = left.connect(right.broadcast()).key_by(lambda record: record[2])
    keyed.process(Sums(), uid="sums").sink(out)
    env.execute(runner="inline")
    seen = [row[1:] for row in out.rows if row[0] == "right"]
    wanted = [(("r", 0, n), subtask, n + 1) for n in range(4) for subtask in range(3)]
    assert sorted(seen) == wanted
