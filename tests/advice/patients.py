"""Jobs that were made to have a disease each, and healthy ones. Most of their time they sleep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import minirt as rt
from minirt import Limits, Options
from minirt.data.batch import Batch
from minirt.io.base import Prepared
from tests.runtime.jobs import Numbers

SMALL = Limits(load_s=0.5, input_queue_bytes=1000, output_queue_bytes=500, frame_bytes=200)
"""Queues that hold as much as a slow function takes about a second for."""
USUAL = Limits(load_s=0.5)


@dataclass(frozen=True)
class Patient:
    """A job, and what advice must say of it: `topics` and nothing else, but for `maybe`.

    `words` must be in it, each somewhere in its titles, evidence, options or effects.
    """

    build: Callable[[rt.Environment], Any]
    topics: tuple[str, ...] = ()
    maybe: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    mode: Any = "aligned"
    interval: str = "500ms"
    checkpointing: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=lambda: Options(limits=SMALL))

    def start(self, name: str, folder: str) -> rt.Job:
        env = rt.Environment(name, parallelism=2)
        self.build(env)
        checkpointing = rt.Checkpointing(
            folder, interval=self.interval, mode=self.mode, **self.checkpointing
        )
        return env.start(checkpointing=checkpointing, options=self.options)


def takes(seconds: float) -> Callable[[int], int]:
    def slow(number: int) -> int:
        time.sleep(seconds)
        return number

    return slow


class FirstSubtaskIsLame(rt.Process):
    def process(self, record: Any, ctx: rt.ProcessContext) -> list[Any]:
        if ctx.subtask == 0:
            time.sleep(0.02)
        return [record]


class SlowSink(rt.Sink):
    """Takes so long for the synchronous, and for the asynchronous part of each snapshot."""

    def __init__(self, sync_s: float = 0.0, async_s: float = 0.0) -> None:
        self.sync_s, self.async_s = sync_s, async_s

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _SlowWriter(self.sync_s, self.async_s)

    def commit(self, handles: Any) -> None:
        """Nothing is shown to anybody."""


class _SlowWriter(rt.SinkWriter):
    def __init__(self, sync_s: float, async_s: float) -> None:
        self._sync_s, self._async_s = sync_s, async_s

    def write(self, batch: Batch) -> None:
        """Nothing is kept."""

    def prepare(self, checkpoint_id: int) -> Prepared:
        time.sleep(self._sync_s)
        return Prepared([{"checkpoint": checkpoint_id}], lambda: time.sleep(self._async_s))


def numbers(env: rt.Environment, per_second: float | None = None) -> rt.Stream:
    return env.source(Numbers(None, per_second=per_second), uid="numbers", parallelism=1)


def slow_map(seconds: float) -> Callable[[rt.Environment], Any]:
    def build(env: rt.Environment) -> None:
        slow = numbers(env).rebalance().map(takes(seconds), uid="slow", name="slow")
        slow.sink(rt.DiscardSink(), uid="out")

    return build


def keyed(key: Callable[[int], int], seconds: float, per_second: float | None = None) -> Any:
    def build(env: rt.Environment) -> None:
        slow = (
            numbers(env, per_second)
            .key_by(key)
            .map(takes(seconds), uid="slow", name="slow", parallelism=3)
        )
        slow.sink(rt.DiscardSink(), uid="out", parallelism=3)

    return build


def straight(env: rt.Environment) -> None:
    slow = numbers(env).map(takes(0.005), uid="slow", name="slow", parallelism=1, chain=False)
    slow.sink(rt.DiscardSink(), uid="out", parallelism=1)


def lame(env: rt.Environment) -> None:
    slow = (
        numbers(env)
        .rebalance()
        .process(FirstSubtaskIsLame(), uid="slow", name="slow", parallelism=3)
    )
    slow.sink(rt.DiscardSink(), uid="out", parallelism=3)


def explodes(env: rt.Environment) -> None:
    def emit(number: int) -> Iterator[str]:
        for place in range(3000):
            yield f"{number} {place} " + "x" * 100

    pieces = numbers(env, 20).flat_map(emit, uid="pieces", name="pieces", parallelism=1)
    slow = pieces.rebalance().map(takes(0.001), uid="slow", name="slow")
    slow.sink(rt.DiscardSink(), uid="out")


def stores(sync_s: float = 0.0, async_s: float = 0.0) -> Callable[[rt.Environment], Any]:
    def build(env: rt.Environment) -> None:
        numbers(env, 50).rebalance().sink(SlowSink(sync_s, async_s), uid="out", name="out")

    return build


def paced(per_second: float, seconds: float = 0.0) -> Callable[[rt.Environment], Any]:
    def build(env: rt.Environment) -> None:
        quick = numbers(env, per_second).rebalance().map(takes(seconds), uid="quick")
        quick.sink(rt.DiscardSink(), uid="out")

    return build


BARRIERS_WAIT = ("start delay: ", "the last ")

SICK: Mapping[str, Patient] = {
    "too slow": Patient(
        slow_map(0.005),
        ("parallelism", "debloat", "unaligned"),
        ("interval",),
        (
            *("Numbers waits ", " ms of each second for room, slow > DiscardSink is busy for "),
            *("for slow", "options.debloat=1s", "checkpointing.mode=unaligned", *BARRIERS_WAIT),
        ),
    ),
    "too slow with a timeout": Patient(
        slow_map(0.005),
        ("parallelism", "debloat", "timeout"),
        ("interval",),
        ("checkpointing.mode=aligned_with_timeout", *BARRIERS_WAIT),
        mode=rt.AlignedWithTimeout(timeout="60s"),
    ),
    "too slow although debloated": Patient(
        slow_map(0.005),
        ("parallelism", "unaligned", "redesign"),
        ("interval",),
        ("It lasts, and what could be set is set.", "in 100% of "),
        options=Options(limits=SMALL, debloat="20s"),
    ),
    "too slow to checkpoint": Patient(
        slow_map(0.02),
        ("parallelism", "debloat", "unaligned", "interval"),
        words=("none of the last ", " expired after 1 s", "checkpointing.timeout above 1 s"),
        checkpointing={"timeout": "1s", "tolerable_failures": 1000},
    ),
    "calls that take long": Patient(
        slow_map(1.5),
        ("parallelism", "long calls", "redesign"),
        ("interval",),
        ("should do less in one call", "start delay: "),
        mode="unaligned",
    ),
    "records that no barrier overtakes": Patient(
        straight,
        ("parallelism", "debloat"),
        ("interval",),
        ("options.queues.slow.debloat=0.1s", "wait there, from numbers", "start delay: "),
        mode="unaligned",
    ),
    "some keys have most": Patient(
        keyed(lambda n: 0 if n % 10 < 7 else n % 97, 0.003),
        ("skew",),
        words=("of the records, where 1/3 would be even", "add a part to the key"),
        mode="unaligned",
    ),
    "one key has nearly all": Patient(
        keyed(lambda n: 0 if n % 100 < 98 else n % 97, 0.003),
        ("redesign",),
        words=("of the records, where 1/3 would be even",),
        mode="unaligned",
    ),
    "one subtask is lame": Patient(
        lame,
        ("slow subtask",),
        words=("so it is not the keys", "its machine, its files"),
        mode="unaligned",
    ),
    "records that become too many": Patient(
        explodes,
        ("large records",),
        ("parallelism", "interval"),
        ("limits.spill_bytes_max", "barriers wait as well while a record is stuck"),
        mode="unaligned",
        options=Options(
            limits=Limits(
                load_s=0.5,
                input_queue_bytes=1000,
                output_queue_bytes=500,
                frame_bytes=200,
                overdraft_bytes=2000,
                spill_bytes_max=2000,
            )
        ),
    ),
    "a synchronous part that takes long": Patient(
        stores(sync_s=0.8),
        ("state",),
        ("interval",),
        ("synchronous part: ", "Spread the state over more subtasks"),
        interval="2s",
        options=Options(limits=USUAL),
    ),
    "a storage that is slow": Patient(
        stores(async_s=1.0),
        ("storage", "interval"),
        words=("asynchronous part: ", "checkpointing.interval=", "Use a quicker storage"),
        interval="1s",
        options=Options(limits=USUAL),
    ),
}

HEALTHY: Mapping[str, Patient] = {
    "paced, aligned": Patient(paced(500), options=Options(limits=USUAL)),
    "paced, unaligned and debloated": Patient(
        paced(300, 0.001), mode="unaligned", options=Options(limits=USUAL, debloat="1s")
    ),
    "nearly idle": Patient(paced(2), mode="at_least_once", options=Options(limits=USUAL)),
    "keys that differ a little": Patient(
        keyed(lambda n: n % 10, 0.001, per_second=200),
        mode=rt.AlignedWithTimeout(timeout="1s"),
        options=Options(limits=USUAL),
    ),
}
