"""The graphs: those of Flink's UnalignedCheckpointITCase, and what else a job may be made of.

Each gets sources and gives back one stream of values. Where the shuffles keep the values of a track
together, the checker also looks at their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt
from tests.oracle.board import Board
from tests.oracle.records import HEADER, checked, copied, track_of
from tests.oracle.stages import Holding, Meeting, Receiver, Sides, Stage

LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Parts:
    """What a graph is made of. `receivers` is a parallelism that stays when that of the job changes."""

    sources: Sequence[rt.Stream]
    lanes: Sequence[Sequence[int]]
    parallelism: int
    receivers: int
    board: Board

    def stage(self, stream: rt.Stream, name: str, **settings: Any) -> rt.Stream:
        return stream.process(Stage(self.board), uid=name, **settings)


@dataclass(frozen=True)
class Topology:
    """`copied` is the index of the source whose values come once for each receiver."""

    name: str
    build: Callable[[Parts], rt.Stream]
    sources: int = 1
    copied: int | None = None
    copies: int = 1
    """How often all values come; told apart by their copy number."""
    ordered: bool = True
    record_s: float = 0.0003
    ordered_by_place: bool = False
    """Whether edges keep order by the subtask alone: barriers leave no records in flight there, but what
    local snapshots leave cannot go to another parallelism."""


def shifted(shift: int, value: int) -> int:
    """A key that keeps tracks together and sends them elsewhere than another shift does."""
    return track_of(value) * 31 + shift


def shuffled(stream: rt.Stream, shift: int) -> rt.Stream:
    return stream.key_by(partial(shifted, shift))


def pipeline(parts: Parts) -> rt.Stream:
    """One shuffle after the other."""
    first = parts.stage(shuffled(parts.sources[0], 1), "first")
    return parts.stage(shuffled(first, 2), "second")


def multi_input(parts: Parts) -> rt.Stream:
    """Operators with two inputs, keyed and not, one behind the other."""
    one, other, third = parts.sources
    met = one.connect(other).key_by(track_of, track_of).process(Meeting(), uid="meeting")
    joined = shuffled(met, 1).connect(shuffled(third, 2)).map(checked, checked, uid="joined")
    return parts.stage(joined, "stage")


def keyed_different_parallelism(parts: Parts) -> rt.Stream:
    """Operators that run more and less parallel than those around them."""
    fewer, more = max(1, parts.parallelism // 2), parts.parallelism + 1
    first = parts.stage(shuffled(parts.sources[0], 1), "fewer", parallelism=fewer)
    return parts.stage(shuffled(first, 2), "more", parallelism=more)


def union(parts: Parts) -> rt.Stream:
    united = shuffled(parts.sources[0], 1).union(*(shuffled(s, 2) for s in parts.sources[1:]))
    return parts.stage(united, "stage")


def twice(parts: Parts) -> rt.Stream:
    """The same upstream as both inputs of one operator, and beside that operator."""
    [source] = parts.sources
    both = shuffled(source, 1).connect(shuffled(source, 2))
    first_copies = both.map(checked, partial(copied, copy=1), uid="both")
    third_copy = source.map(partial(copied, copy=2), uid="third")
    return parts.stage(shuffled(first_copies.union(third_copy), 3), "stage")


def broadcast(parts: Parts) -> rt.Stream:
    received = parts.sources[0].broadcast()
    copies = received.process(Receiver(parts.lanes[0]), uid="receiver", parallelism=parts.receivers)
    return parts.stage(shuffled(copies, 1), "stage")


def keyed_broadcast(parts: Parts) -> rt.Stream:
    """One operator with a keyed and a broadcast input."""
    keyed, everywhere = parts.sources
    united = shuffled(keyed, 1).union(everywhere.broadcast())
    copies = united.process(Receiver(parts.lanes[1]), uid="receiver", parallelism=parts.receivers)
    return parts.stage(shuffled(copies, 2), "stage")


def custom_partitioner(parts: Parts) -> rt.Stream:
    dealt = parts.sources[0].partition_custom(lambda key, count: (key + 1) % count, track_of)
    again = parts.stage(dealt, "first").partition_custom(
        lambda key, count: key * 7 % count, track_of
    )
    return parts.stage(again, "second")


def forward(parts: Parts) -> rt.Stream:
    """Links that only join subtasks of equal index."""
    first = parts.stage(parts.sources[0].forward(), "first", chain=False)
    return parts.stage(first.forward(), "second", chain=False)


def rescale(parts: Parts) -> rt.Stream:
    """Round robin within blocks and among all."""
    wide = parts.stage(parts.sources[0].rescale(), "wide", parallelism=2 * parts.parallelism)
    narrow = parts.stage(wide.rescale(), "narrow")
    return parts.stage(narrow.rebalance(), "even")


def straight_on(parts: Parts) -> rt.Stream:
    """Records that are in order by key go on without being looked at, as rows and as columns."""
    first = parts.stage(shuffled(parts.sources[0], 1), "first")
    rows = first.rescale().map(lambda v: {"track": track_of(v), "value": v}, uid="rows")
    passed = rows.forward().map_batches(_checked_columns, "columns", uid="columns")
    again = passed.rescale().map_batches(_checked_columns, "columns", uid="again")
    return parts.stage(again.map(lambda row: row["value"], uid="values"), "second")


def skewed(parts: Parts) -> rt.Stream:
    """Everything has the same key once, and then a few have it."""
    together = parts.stage(parts.sources[0].key_by(lambda value: 0), "together")
    return parts.stage(together.key_by(lambda value: track_of(value) % 2), "halves")


def sides(parts: Parts) -> rt.Stream:
    main = shuffled(parts.sources[0], 1).process(Sides(), uid="sides")
    odd = parts.stage(shuffled(main.side_output("odd"), 2), "odd")
    return parts.stage(shuffled(main, 3), "even").union(odd)


def timers(parts: Parts) -> rt.Stream:
    """Values wait for timers of either clock."""
    held = parts.sources[0].key_by(track_of).process(Holding("event"), uid="event")
    again = shuffled(held, 1).process(Holding("processing"), uid="processing")
    return parts.stage(shuffled(again, 2), "stage")


def large(parts: Parts) -> rt.Stream:
    """Records of a megabyte, larger than all queues."""
    inflated = shuffled(parts.sources[0], 1).map(_inflate, uid="inflate")
    passed = inflated.key_by("track").map(lambda row: _inflate(_deflate(row)), uid="pass")
    return parts.stage(passed.key_by("track").map(_deflate, uid="deflate"), "stage", chain=False)


def columns(parts: Parts) -> rt.Stream:
    rows = parts.sources[0].map(lambda v: {"track": track_of(v), "value": v}, uid="rows")
    first = rows.key_by("track").map_batches(_checked_columns, "columns", uid="first")
    second = first.key_by("track").map_batches(_checked_columns, "columns", uid="second")
    return parts.stage(second.key_by("track").map(lambda row: row["value"], uid="values"), "stage")


def _inflate(value: int) -> dict[str, Any]:
    return {"track": track_of(value), "value": value, "pad": bytes([value & 0xFF]) * LARGE_BYTES}


def _deflate(row: dict[str, Any]) -> int:
    value = checked(row["value"])
    if row["pad"] != bytes([value & 0xFF]) * LARGE_BYTES:
        raise ValueError(f"the padding of {value:#x} is damaged")
    return value


def _checked_columns(table: pa.RecordBatch) -> pa.RecordBatch:
    headers = pc.shift_right(table["value"], 32)
    if not pc.all(pc.equal(headers, HEADER >> 32)).as_py():
        raise ValueError("a value in columns does not carry the header")
    return table


TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology("pipeline", pipeline),
        Topology("multi_input", multi_input, sources=3),
        Topology("keyed_different_parallelism", keyed_different_parallelism),
        Topology("union", union, sources=3),
        Topology("twice", twice, copies=3),
        Topology("broadcast", broadcast, copied=0),
        Topology("keyed_broadcast", keyed_broadcast, sources=2, copied=1),
        Topology("custom_partitioner", custom_partitioner),
        Topology("forward", forward, ordered_by_place=True),
        Topology("rescale", rescale, ordered=False),
        Topology("straight_on", straight_on, ordered_by_place=True),
        Topology("skewed", skewed),
        Topology("sides", sides),
        Topology("timers", timers),
        Topology("large", large, record_s=0.005),
        Topology("columns", columns),
    )
}
