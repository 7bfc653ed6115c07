"""A job that remembers every record it has seen, and a look into its checkpoints.

Each checkpoint must be a consistent cut: the records before the stored source offsets are those that
the keyed state remembers or that were captured in flight, and those that state remembers are those
that are committed or wait for their commit. The checkpoint is read from its bytes, by what docs say
about their layout.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgpack

import minirt as rt
from minirt.data.codec import RowCodec
from minirt.data.layout import unpack_values
from minirt.modes import find_mode
from minirt.testing import Faults, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered

SPLITS, COUNT, KEYS = 3, 7, 4
EXPECTED = Counter(numbered("n", SPLITS, COUNT))


def key_of(record: tuple[str, int, int]) -> int:
    return (record[1] + record[2]) % KEYS


class Remember(rt.KeyedProcess):
    """Emits each record with its number among those of its key."""

    seen = rt.ListState()
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.seen.add(record)
        self.count.value += 1
        yield (record, self.count.value)


class CountingJob:
    """The job at the given parallelisms; the first is where it starts."""

    def __init__(self, parallelisms: Sequence[int]) -> None:
        self.sink = TransactionalSink()
        self.forms = [self._form(parallelism) for parallelism in parallelisms]
        self.cuts = 0
        """How many checkpoints were looked into."""
        self.in_flight = 0
        """How many records they held in flight."""

    def _form(self, parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        source = env.source(NumberedSource("n", SPLITS, COUNT), uid="n")
        counted = source.key_by(key_of).process(Remember(), uid="count")
        counted.sink(self.sink, uid="out")
        return env

    def run(
        self,
        seed: int,
        mode: Any = "aligned",
        faults: Faults | None = None,
        steps_max: int = 60_000,
    ) -> SimulationResult:
        first, *rescaled = self.forms
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode, retain=2)
        return simulate(
            first,
            seed=seed,
            checkpointing=checkpointing,
            faults=faults,
            rescaled=rescaled,
            steps_max=steps_max,
            on_checkpoint=self.look_at if find_mode(mode).exactly_once else None,
        )

    def look_at(self, objects: Mapping[str, bytes], path: str) -> None:
        """Assert that a checkpoint is a consistent cut."""
        manifest = msgpack.unpackb(sections_of(objects[path])["manifest"], strict_map_key=False)
        if f"generations/{manifest['generation'] + 1:08}.claim" in objects:
            return  # Its coordinator was replaced: nobody will restore this, nor commit its output.
        self.cuts += 1
        snapshots = [_snapshot(objects, ref) for ref in manifest["snapshots"]]
        read = _records_read(snapshots)
        remembered = _records_remembered(snapshots)
        under_way = _records_in_flight(objects, manifest)
        self.in_flight += under_way.total()
        passed_on = remembered + under_way
        assert passed_on == read, _difference("state or in flight", passed_on, "sources", read)
        put_out = self._records_put_out(manifest)
        assert put_out == remembered, _difference("output", put_out, "keyed state", remembered)

    def _records_put_out(self, manifest: Mapping[str, Any]) -> Counter[Any]:
        committed, pending = self.sink.committed, self.sink.pending
        waiting = [handle["id"] for held in manifest["sink_handles"] for handle in held["handles"]]
        rows = [row for rows in committed.values() for row in rows]
        for id in waiting:
            if id not in committed:
                assert id in pending, f"output {id} of a completed checkpoint is not durable"
                rows += pending[id]
        return Counter(record for record, _ in rows)

    def wrong(self, *, exactly_once: bool = True) -> list[str]:
        """What is wrong with the committed output."""
        got = Counter(record for record, _ in self.sink.rows)
        lost, more = EXPECTED - got, got - EXPECTED
        found = [f"lost {list(lost)[:3]}"] if lost else []
        if more and (exactly_once or not got.keys() <= EXPECTED.keys()):
            found.append(f"duplicated {list(more)[:3]}")
        return found + (self._out_of_order() if exactly_once else [])

    def _out_of_order(self) -> list[str]:
        """Records of one split and key stay in order, and the count of a key goes up by one each time."""
        last_number: dict[tuple[int, int], int] = {}
        last_count: dict[int, int] = {}
        for record, count in self.sink.rows:
            _, split, number = record
            key = key_of(record)
            if last_number.get((split, key), -1) >= number:
                return [f"{record} comes after number {last_number[split, key]}"]
            if count != last_count.get(key, 0) + 1:
                return [f"key {key} counted {count} after {last_count.get(key, 0)}"]
            last_number[split, key], last_count[key] = number, count
        return []


def run_counting(
    seed: int, *, mode: str = "aligned", faults: Faults | None = None, steps_max: int = 60_000
) -> list[str]:
    """What is wrong with one simulated run of the counting job; nothing, hopefully."""
    random = Random(f"counting {seed}")
    job = CountingJob([random.randint(1, 3) for _ in range(random.randint(1, 3))])
    result = job.run(seed, mode=mode, faults=faults, steps_max=steps_max)
    return [*result.problems, *job.wrong()]


# Reading a checkpoint.

_HEADER = struct.Struct("<8sBII")
_FRAME = struct.Struct("<IB")


def sections_of(part: bytes) -> dict[str, bytes]:
    """The named sections of a stored part."""
    _, _, index_bytes, _ = _HEADER.unpack_from(part)
    position = _HEADER.size + index_bytes
    sections = {}
    for name, length, _ in msgpack.unpackb(part[_HEADER.size : position]):
        sections[name] = part[position : position + length]
        position += length
    return sections


def _snapshot(objects: Mapping[str, bytes], ref: Mapping[str, Any]) -> dict[str, bytes]:
    if ref["path"] is None:
        return sections_of(ref["inline"])
    assert ref["path"] in objects, (
        f"snapshot {ref['path']} of a completed checkpoint is not durable"
    )
    return sections_of(objects[ref["path"]])


def _records_read(snapshots: Sequence[Mapping[str, bytes]]) -> Counter[Any]:
    """Those before the offsets. A split that nobody holds any more was read to its end."""
    read = {f"n-{split}": COUNT for split in range(SPLITS)}
    for snapshot in snapshots:
        if "n\x1fsplits" in snapshot:
            for _, id, _, offset, skip, finished in msgpack.unpackb(snapshot["n\x1fsplits"]):
                read[id] = COUNT if finished else (offset or 0) + skip
    return Counter(
        ("n", split, number) for split in range(SPLITS) for number in range(read[f"n-{split}"])
    )


def _records_remembered(snapshots: Sequence[Mapping[str, bytes]]) -> Counter[Any]:
    remembered: Counter[Any] = Counter()
    for snapshot in snapshots:
        for records in _values(snapshot.get("count\x1fstate/seen", b"")):
            remembered.update(tuple(record) for record in records)
    return remembered


def _records_in_flight(objects: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Counter[Any]:
    """Those in the frames that were captured: behind 5 bytes come packed rows."""
    found: Counter[Any] = Counter()
    for captured in manifest["in_flight"]:
        for section in _snapshot(objects, captured["stored"]).values():
            position = 0
            while position < len(section):
                length, _ = _FRAME.unpack_from(section, position)
                start = position + _FRAME.size
                position = start + length
                found.update(RowCodec().decode(section[start:position]).records)
    return found


def _values(section: bytes) -> list[Any]:
    """The values of a table of keyed state: behind 8 bytes come chunks of two packed columns."""
    values, position = [], 8
    while position < len(section):
        keys_bytes, values_bytes = struct.unpack_from("<II", section, position)
        start = position + 8 + keys_bytes
        position = start + values_bytes
        values += unpack_values(section[start:position], allow_pickle=False)
    return values


def _difference(one: str, has: Counter[Any], other: str, of: Counter[Any]) -> str:
    return (
        f"no consistent cut: only in {one} {list((has - of).elements())[:3]}, "
        f"only in {other} {list((of - has).elements())[:3]}"
    )
