"""Jobs that are small enough to be explored, and checkers that know what must come out of them.

A source numbers the records of each of its splits. So it is known which records are before any set of
source offsets, and each of these must be either put out or in flight, once for each copy of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import minirt as rt
from minirt.modes import find_mode
from minirt.testing import TransactionalSink
from minirt.testing.conformance.stored import StoredCheckpoint
from minirt.testing.exploration import ExplorationResult, explore

KEYS = 2

Record = tuple[int, int]
"""Split and number."""


class SplitSource(rt.Source):
    """Gives out all records of a split at once, as pairs of split and number."""

    def __init__(self, splits: int, count: int) -> None:
        self.splits = splits
        self.count = count

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(f"n-{split}", {"split": split}) for split in range(self.splits)]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _SplitReader(split.info["split"], self.count, offset or 0)


class _SplitReader(rt.SplitReader):
    def __init__(self, split: int, count: int, offset: int) -> None:
        self.offset = offset
        self._split = split
        self._count = count

    def read(self) -> list[Record] | None:
        rows = [(self._split, number) for number in range(self.offset, self._count)]
        self.offset = self._count
        return rows or None


class CountKeys(rt.KeyedProcess):
    """Emits each record with its number among those of its key."""

    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield (record, self.count.value)


def key_of(record: Record) -> int:
    return sum(record) % KEYS


def uncounted(record: Record) -> tuple[Record, None]:
    return (record, None)


@dataclass(frozen=True)
class SmallJob:
    """`sources` subtasks read `records` each; `build` says what becomes of them."""

    edge: str
    sources: int
    records: int
    subtasks: int

    @property
    def name(self) -> str:
        return f"{self.edge} {self.sources}x{self.records}>{self.subtasks}"

    @property
    def copies(self) -> int:
        """How often each record is put out."""
        return {"broadcast": self.subtasks, "forward": 2}.get(self.edge, 1)

    @property
    def all_records(self) -> list[Record]:
        return [(split, number) for split in range(self.sources) for number in range(self.records)]


def build(job: SmallJob, sinks: Sequence[TransactionalSink]) -> rt.Environment:
    env = rt.Environment(parallelism=job.subtasks, max_parallelism=KEYS)
    source = SplitSource(job.sources, job.records)
    read = env.source(source, uid="n", parallelism=job.sources)
    match job.edge:
        case "shuffle":
            read.key_by(key_of).process(CountKeys(), uid="count").sink(sinks[0], uid="out-0")
        case "broadcast":
            read.broadcast().map(uncounted).sink(sinks[0], uid="out-0")
        case "forward":
            for place, sink in enumerate(sinks):
                read.map(uncounted, chain=False).sink(sink, uid=f"out-{place}")
        case other:
            raise ValueError(other)
    return env


def explore_job(
    job: SmallJob, mode: Any, *, checkpoints: int, crashes: int, **options: Any
) -> ExplorationResult:
    """Explore the job with all checks that its mode can pass."""
    sinks = [TransactionalSink() for _ in range(2 if job.edge == "forward" else 1)]
    exactly_once = find_mode(mode).exactly_once
    checker = Checker(job, sinks, exactly_once)
    return explore(
        build(job, sinks),
        mode,
        checker.check_output,
        checkpoints=checkpoints,
        crashes=crashes,
        on_checkpoint=checker.check_cut if exactly_once else None,
        **options,
    )


@dataclass(frozen=True)
class Checker:
    job: SmallJob
    sinks: Sequence[TransactionalSink]
    exactly_once: bool

    def check_output(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Nothing is lost; and if once is exactly once, nothing comes twice or too early."""
        out = [row for _, of_sink in sorted(rows.items()) for row in of_sink]
        got = Counter(record for record, _ in out)
        wanted = _times(self.job.all_records, self.job.copies)
        assert not wanted - got, f"lost {sorted((wanted - got).elements())}"
        assert got.keys() <= wanted.keys(), f"made up {sorted(got.keys() - wanted.keys())}"
        if self.exactly_once:
            assert not got - wanted, f"duplicated {sorted((got - wanted).elements())}"
            for of_sink in rows.values():
                _check_order(of_sink)

    def check_cut(self, objects: Mapping[str, bytes], path: str) -> None:
        """What was read is what was put out, and what is in flight."""
        early = self._handles(objects, path) & {id for sink in self.sinks for id in sink.committed}
        for other in objects:
            if other.startswith("manifests/") and other != path:
                early -= self._handles(objects, other)
        assert not early, f"output {sorted(early)} is committed before its manifest exists"
        read, out, under_way = self.contents(objects, path)
        assert out + under_way == read, (
            f"no consistent cut: read {sorted(read.elements())}, put out {sorted(out.elements())}, "
            f"in flight {sorted(under_way.elements())}"
        )

    def contents(
        self, objects: Mapping[str, bytes], path: str
    ) -> tuple[Counter[Record], Counter[Record], Counter[Record]]:
        """What was read, once for each copy, what was put out, and what is in flight."""
        stored = StoredCheckpoint(objects, path)
        return (
            _times(self._read(stored), self.job.copies),
            Counter(self._put_out(stored)),
            Counter(record for _, _, record in stored.in_flight()),
        )

    def _handles(self, objects: Mapping[str, bytes], path: str) -> set[str]:
        return {handle["id"] for _, handle in StoredCheckpoint(objects, path).handles()}

    def _read(self, stored: StoredCheckpoint) -> Iterable[Record]:
        """The records before the stored positions."""
        for name, position in stored.positions("n").items():
            split = int(name.removeprefix("n-"))
            count = self.job.records if position is None else position
            yield from ((split, number) for number in range(count))

    def _put_out(self, stored: StoredCheckpoint) -> Iterable[Record]:
        """What is committed, and what waits for it with this checkpoint."""
        for place, sink in enumerate(self.sinks):
            waiting = [handle for uid, handle in stored.handles() if uid == f"out-{place}"]
            yield from (record for rows in sink.committed.values() for record, _ in rows)
            yield from (record for record, _ in _pending(sink, waiting))


def _pending(sink: TransactionalSink, handles: Iterable[Mapping[str, Any]]) -> Iterable[Any]:
    pending, committed = sink.pending, sink.committed
    for id in (handle["id"] for handle in handles if handle["id"] not in committed):
        assert id in pending, f"output {id} of a completed checkpoint is not durable"
        yield from pending[id]


def _times(records: Iterable[Record], copies: int) -> Counter[Record]:
    return Counter(dict.fromkeys(records, copies))


def _check_order(rows: Sequence[tuple[Record, int | None]]) -> None:
    """A record comes no more often than the one before it in its channel; counts go up by one."""
    seen: Counter[Record] = Counter()
    counts: Counter[int] = Counter()
    for record, count in rows:
        seen[record] += 1
        split, number = record
        before = (split, number - KEYS if count is not None else number - 1)
        assert before[1] < 0 or seen[before] >= seen[record], f"{record} comes before {before}"
        if count is not None:
            counts[key_of(record)] += 1
            assert count == counts[key_of(record)], f"{record} is number {count} of its key"
