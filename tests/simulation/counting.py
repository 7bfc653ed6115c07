"""A job that remembers every record it has seen, and a look into its checkpoints.

Each checkpoint must be a consistent cut: the records before the stored source offsets are those that
the keyed state remembers or that were captured in flight, and those that state remembers are those
that are committed or wait for their commit. The checkpoint is read from its bytes, by what docs say
about their layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import minirt as rt
from minirt.modes import find_mode
from minirt.testing import Faults, Requests, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.cuts import put_out
from minirt.testing.conformance.sources import NumberedSource, numbered
from minirt.testing.conformance.stored import StoredCheckpoint

SPLITS, COUNT, KEYS = 3, 7, 4
EXPECTED = Counter(numbered("n", SPLITS, COUNT))
HASTY_ROWS = rt.Options(
    flush="on_demand",
    limits=rt.Limits(row_input_queue_bytes=100, row_output_queue_bytes=50),
)
"""Buffers leave when somebody waits for them, and channels hold a few rows where columns would be many."""

MARKED = rt.Options(
    latency_interval="2ms",
    limits=rt.Limits(input_queue_bytes=200, output_queue_bytes=100, frame_records=4),
)
"""Sources send latency markers as often as they read, and queues are full of them."""

SPILLING = rt.Options(
    limits=rt.Limits(
        input_queue_bytes=100, output_queue_bytes=1, overdraft_bytes=0, frame_records=1
    )
)
"""Memory has no room: whatever waits in an output queue does so on disk."""


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
        requests: Requests | None = None,
        origin: Mapping[str, bytes] | None = None,
        retain: int = 2,
        options: rt.Options | None = None,
        restart: Any = None,
        max_concurrent: int = 1,
    ) -> SimulationResult:
        first, *rescaled = self.forms
        checkpointing = rt.Checkpointing(
            *("simulated://", "20ms", mode), retain=retain, max_concurrent=max_concurrent
        )
        return simulate(
            first,
            seed=seed,
            checkpointing=checkpointing,
            faults=faults,
            requests=requests,
            origin=origin,
            rescaled=rescaled,
            options=options,
            restart=restart,
            steps_max=steps_max,
            on_checkpoint=self.look_at if find_mode(mode).exactly_once else None,
        )

    def look_at(self, objects: Mapping[str, bytes], path: str) -> None:
        """Assert that a checkpoint is a consistent cut."""
        stored = StoredCheckpoint(objects, path)
        if stored.replaced:
            return
        self.cuts += 1
        read, remembered = _records_read(stored), _records_remembered(stored)
        under_way = Counter(record for _, _, record in stored.in_flight())
        self.in_flight += under_way.total()
        passed_on = remembered + under_way
        assert passed_on == read, _difference("state or in flight", passed_on, "sources", read)
        output = self._records_put_out(stored)
        assert output == remembered, _difference("output", output, "keyed state", remembered)

    def _records_put_out(self, stored: StoredCheckpoint) -> Counter[Any]:
        rows = put_out(self.sink, [handle for _, handle in stored.handles()])
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
    seed: int,
    *,
    mode: Any = "aligned",
    faults: Faults | None = None,
    steps_max: int = 60_000,
    options: rt.Options | None = None,
) -> list[str]:
    """What is wrong with one simulated run of the counting job; nothing, hopefully."""
    random = Random(f"counting {seed}")
    job = CountingJob([random.randint(1, 3) for _ in range(random.randint(1, 3))])
    result = job.run(seed, mode=mode, faults=faults, steps_max=steps_max, options=options)
    return [*result.problems, *job.wrong()]


def remembered_in(savepoint: Mapping[str, bytes]) -> Counter[Any]:
    """The records that the keyed state of a savepoint has seen, and that were thus put out before it."""
    [path] = [path for path in savepoint if path.startswith("manifests/")]
    return _records_remembered(StoredCheckpoint(savepoint, path))


# Reading a checkpoint.


def _records_read(stored: StoredCheckpoint) -> Counter[Any]:
    """Those before the offsets."""
    read = stored.positions("n")
    counts = [read.get(f"n-{split}") for split in range(SPLITS)]
    return Counter(
        ("n", split, number)
        for split, count in enumerate(counts)
        for number in range(COUNT if count is None else count)
    )


def _records_remembered(stored: StoredCheckpoint) -> Counter[Any]:
    return Counter(
        tuple(record) for _, records in stored.state("count", "seen") for record in records
    )


def _difference(one: str, has: Counter[Any], other: str, of: Counter[Any]) -> str:
    return (
        f"no consistent cut: only in {one} {list((has - of).elements())[:3]}, "
        f"only in {other} {list((of - has).elements())[:3]}"
    )
