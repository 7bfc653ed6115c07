"""Jobs that were edited between a checkpoint with full queues and its restore: right, or refused."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.protocol.restore_options import RestoreOptions
from minirt.runtime.subtask.chain import Chain
from minirt.testing import TransactionalSink
from tests.runtime.stepped import SteppedJob

COUNT, SPLITS, KEYS = 400, 6, 11
LATEST = RestoreOptions("latest")

Shape = Callable[[rt.Stream], rt.Stream]


class Number(rt.KeyedProcess):
    """Numbers the records of a key."""

    count = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[tuple[int, int, int]]:
        self.count.value += 1
        yield (ctx.key, self.count.value, record)


class Compare(rt.KeyedProcess):
    """Says of each record whether it comes behind a later one of its key."""

    newest = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[tuple[int, bool]]:
        _, count, number = record.values() if isinstance(record, dict) else record
        late, self.newest.value = count < self.newest.value, max(count, self.newest.value)
        yield (number, late)


def same(record: Any) -> Any:
    return record


def key_of(n: int) -> int:
    return n % KEYS


def first(record: Any) -> Any:
    return record["key"] if isinstance(record, dict) else record[0]


def laid_out(record: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("key", "count", "number"), record, strict=True))


def columns(table: pa.RecordBatch) -> pa.RecordBatch:
    return table


def job_of(shape: Shape, sink: rt.Sink, parallelism: int, sources: int = 0) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=32)
    source = env.source(
        rt.SequenceSource(COUNT, splits=SPLITS), uid="numbers", parallelism=sources or parallelism
    )
    shape(source).sink(sink, uid="out")
    return env


def restored(
    old: rt.Environment, new: rt.Environment, folder: Path, turns: int = 30, mode: str = "unaligned"
) -> None:
    """Run the one until its queues are full, take a checkpoint, and run the other to its end."""
    job = SteppedJob(old, folder)
    job.work(turns)
    job.clog()
    job.checkpoint(working=True)
    SteppedJob(new, folder, restore=LATEST, mode=mode).finish()


def all_in_order(shape: Shape) -> Shape:
    """Records are numbered by key, take their way through `shape`, and are compared by key."""

    def whole(source: rt.Stream) -> rt.Stream:
        counted = source.key_by(key_of).process(Number(), uid="number")
        return shape(counted).key_by(first).process(Compare(), uid="compare")

    return whole


ORDERED: dict[str, Shape] = {
    "forward": lambda s: s.forward().map(same, uid="same", chain=False),
    "said by nobody": lambda s: s.map(same, uid="same", chain=False),
    "rescale": lambda s: s.rescale().map(same, uid="same"),
    "two forward": lambda s: s.map(same, uid="one", chain=False).map(same, uid="two", chain=False),
    "columns": lambda s: (
        s.map(laid_out, uid="lay")
        .map_batches(columns, "columns", uid="columns")
        .map_batches(columns, "columns", uid="same", chain=False)
    ),
    "columns by rescale": lambda s: (
        s.map(laid_out, uid="lay")
        .map_batches(columns, "columns", uid="columns")
        .rescale()
        .map_batches(columns, "columns", uid="same")
    ),
}


@pytest.mark.parametrize(
    ("before", "after"),
    [(2, 3), (4, 1), *(pytest.param(*pair, marks=pytest.mark.soak) for pair in ((3, 2), (2, 2)))],
)
@pytest.mark.parametrize("shape", ORDERED)
def test_records_of_a_key_keep_their_order_behind_pointwise_edges(
    shape: str, before: int, after: int, tmp_path: Path
) -> None:
    sink, whole = TransactionalSink(), all_in_order(ORDERED[shape])
    restored(job_of(whole, sink, before), job_of(whole, sink, after), tmp_path)
    assert sorted(number for number, _ in sink.rows) == [*range(COUNT)]
    assert not any(late for _, late in sink.rows)


def test_an_edge_whose_order_does_not_matter_is_overtaken(tmp_path: Path) -> None:
    shape = all_in_order(
        lambda s: s.forward(ordered=False).map(same, uid="same", chain=False),
    )
    sink = TransactionalSink()
    job = SteppedJob(job_of(shape, sink, 2), tmp_path)
    job.clog()
    held = {data.link for captured in job.checkpoint().in_flight for data in captured.channels}
    assert "number > same:0" in held
    SteppedJob(job_of(shape, sink, 3), tmp_path, restore=LATEST).finish()
    assert sorted(number for number, _ in sink.rows) == [*range(COUNT)]


def each_once(shape: Shape) -> Shape:
    return lambda s: shape(s).key_by(key_of).process(Number(), uid="number")


def numbered_once(rows: list[tuple[int, int, int]]) -> None:
    assert sorted(number for _, _, number in rows) == [*range(COUNT)]
    counts = Counter((key, count) for key, count, _ in rows)
    assert set(counts.values()) == {1}


CHAINED: dict[str, tuple[Shape, int, Shape, int]] = {
    "fewer subtasks": (
        lambda s: s.map(same, uid="same", parallelism=3),
        2,
        lambda s: s.map(same, uid="same"),
        2,
    ),
    "all fewer": (
        lambda s: s.map(same, uid="same", parallelism=4),
        3,
        lambda s: s.map(same, uid="same"),
        2,
    ),
    "in turn": (
        lambda s: s.rebalance().map(same, uid="same"),
        3,
        lambda s: s.map(same, uid="same"),
        3,
    ),
    "two in a row": (
        lambda s: s.rebalance().map(same, uid="one").rebalance().map(same, uid="two"),
        3,
        lambda s: s.map(same, uid="one").map(same, uid="two"),
        2,
    ),
    "order does not matter": (
        lambda s: s.forward(ordered=False).map(same, uid="same", chain=False),
        3,
        lambda s: s.forward(ordered=False).map(same, uid="same"),
        2,
    ),
    "by key, to one subtask": (
        lambda s: s.key_by(key_of).map(same, uid="same"),
        3,
        lambda s: s.map(same, uid="same"),
        1,
    ),
}


@pytest.mark.parametrize(
    "mode",
    [
        "aligned",
        "unaligned",
        *(
            pytest.param(mode, marks=pytest.mark.soak)
            for mode in ("at_least_once", "aligned_with_timeout", "epoch")
        ),
    ],
)
@pytest.mark.parametrize("change", CHAINED)
def test_records_on_their_way_to_an_operator_that_is_chained_now_come_first(
    change: str, mode: str, tmp_path: Path
) -> None:
    sink, (old, before, new, after) = TransactionalSink(), CHAINED[change]
    restored(
        job_of(each_once(old), sink, before),
        job_of(each_once(new), sink, after),
        tmp_path,
        turns=4,
        mode=mode,
    )
    numbered_once(sink.rows)


@pytest.mark.parametrize("mode", ["aligned", "epoch", "unaligned"])
def test_a_checkpoint_waits_for_records_that_have_no_link_any_more(
    mode: str, tmp_path: Path
) -> None:
    """And what it holds is restored again at yet another parallelism."""
    old, _, new, _ = CHAINED["two in a row"]
    sink = TransactionalSink()
    job = SteppedJob(job_of(each_once(old), sink, 3), tmp_path)
    job.clog()
    job.checkpoint()
    chained = SteppedJob(job_of(each_once(new), sink, 2), tmp_path, restore=LATEST, mode=mode)
    chained.work(2)
    manifest = chained.checkpoint(working=True)
    held = {data.link for captured in manifest.in_flight for data in captured.channels}
    assert held <= {"two > number:0"}
    SteppedJob(job_of(each_once(old), sink, 4), tmp_path, restore=LATEST).finish()
    numbered_once(sink.rows)


def test_a_stop_waits_for_records_that_have_no_link_any_more(tmp_path: Path) -> None:
    """They lie ahead of the snapshot of a source: it pauses behind that, not at the trigger."""
    old, _, new, _ = CHAINED["two in a row"]
    sink = TransactionalSink()
    job = SteppedJob(job_of(each_once(old), sink, 3), tmp_path)
    job.work(20)
    job.checkpoint()
    SteppedJob(job_of(each_once(new), sink, 2), tmp_path, restore=LATEST, mode="aligned").stop()
    assert 0 < len(sink.rows) < COUNT
    SteppedJob(job_of(each_once(new), sink, 2), tmp_path, restore=LATEST).finish()
    numbered_once(sink.rows)


def forked(*apart: str) -> Shape:
    """Two branches of the chain of the source; those named here are chains of their own."""

    def whole(source: rt.Stream) -> rt.Stream:
        dealt = source.forward(ordered=False)
        even = dealt.map(lambda n: 2 * n, uid="even", chain="even" not in apart)
        odd = dealt.map(lambda n: 2 * n + 1, uid="odd", chain="odd" not in apart)
        return even.union(odd).key_by(key_of).process(Number(), uid="number")

    return whole


BRANCHES = [(), ("even",), ("odd",), ("even", "odd")]


BRANCH_MODES = ["aligned", "unaligned"]
WIDTHS = [(2, 2), (3, 2), (2, 3)]


def changes_of_branches() -> Iterator[Any]:
    """All of them. `make test` takes 16, in which every two values of different parameters meet."""
    for (a, old), (b, new) in itertools.product(enumerate(BRANCHES), repeat=2):
        taken = (WIDTHS[(a + b) % 3], BRANCH_MODES[(a + b // 2) % 2])
        for widths, mode in itertools.product(WIDTHS, BRANCH_MODES):
            marks = [] if (widths, mode) == taken else [pytest.mark.soak]
            name = f"{' and '.join(old)}-{' and '.join(new)}-{widths[0]}-{widths[1]}-{mode}"
            yield pytest.param(old, new, *widths, mode, marks=marks, id=name)


@pytest.mark.parametrize(("old", "new", "before", "after", "mode"), [*changes_of_branches()])
def test_records_in_flight_find_their_branch(
    old: tuple[str, ...], new: tuple[str, ...], before: int, after: int, mode: str, tmp_path: Path
) -> None:
    """Also if the next checkpoint is taken before all of them are consumed, and is restored as before."""
    sink = TransactionalSink()
    job = SteppedJob(job_of(forked(*old), sink, before), tmp_path)
    job.clog()
    held = {data.link for captured in job.checkpoint().in_flight for data in captured.channels}
    assert len(old) < 2 or "numbers > even:0" in held or "numbers > odd:0" in held
    edited = SteppedJob(job_of(forked(*new), sink, after), tmp_path, restore=LATEST, mode=mode)
    edited.work(2)
    edited.checkpoint(working=True)
    SteppedJob(job_of(forked(*old), sink, before), tmp_path, restore=LATEST).finish()
    assert sorted(number for _, _, number in sink.rows) == [*range(2 * COUNT)]


def test_records_in_flight_that_come_to_the_wrong_branch_are_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = Chain.process
    monkeypatch.setattr(
        Chain, "process", lambda self, batch, i, place: process(self, batch, i, min(place, 1))
    )
    with pytest.raises(AssertionError):
        test_records_in_flight_find_their_branch(("odd",), (), 2, 2, "unaligned", tmp_path)


def shown(sink: TransactionalSink) -> Counter[int]:
    return Counter(number for _, _, number in sink.rows)


REFUSED: dict[str, tuple[Shape, Shape, str]] = {
    "a broadcast is none any more": (
        lambda s: s.broadcast().map(same, uid="same"),
        lambda s: s.rebalance().map(same, uid="same"),
        r"'numbers > same:0'.*broadcast to 3 subtasks.*broadcast\(\) once more.*aligned checkpoint",
    ),
    "a broadcast is chained": (
        lambda s: s.broadcast().map(same, uid="same"),
        lambda s: s.map(same, uid="same"),
        r"'numbers > same:0'.*broadcast to 3 subtasks",
    ),
    "keys are not looked at any more": (
        lambda s: s.key_by(key_of).map(same, uid="same"),
        lambda s: s.forward().map(same, uid="same", chain=False),
        r"'numbers > same:0'.*order of records of one key.*forward\(ordered=False\)",
    ),
    "keys are not looked at in a chain": (
        lambda s: s.key_by(key_of).map(same, uid="same"),
        lambda s: s.rescale().map(same, uid="same"),
        r"'numbers > same:0'.*order of records of one key.*rescale\(ordered=False\)",
    ),
    "another operator": (
        lambda s: s.rebalance().map(same, uid="same"),
        lambda s: s.rebalance().map(same, uid="other"),
        r"'numbers > same:0' \(\d+ bytes\).*does not have them.*ignore_in_flight_data_of=1",
    ),
    "a map in front of another": (
        lambda s: s.rebalance().map(lambda n: n + 1).rebalance().map(lambda n: n - 1),
        lambda s: (
            s.rebalance()
            .map(lambda n: n)
            .rebalance()
            .map(lambda n: n + 1)
            .rebalance()
            .map(lambda n: n - 1)
        ),
        r"'map-2 > number:0'.*give uid='map-2' to the operators that had them",
    ),
    "one map less and one more": (
        lambda s: s.rebalance().map(lambda n: n + 1).rebalance().map(lambda n: n - 1),
        lambda s: s.rebalance().map(lambda n: n - 1).rebalance().map(lambda n: n * 2),
        r"cannot be told for sure.*give uid='map'",
    ),
}


@pytest.mark.parametrize("change", [*REFUSED])
def test_what_cannot_be_dealt_right_is_refused_with_the_ways_out(
    change: str, tmp_path: Path
) -> None:
    sink, (old, new, message) = TransactionalSink(), REFUSED[change]
    job = SteppedJob(job_of(each_once(old), sink, 3), tmp_path)
    job.clog()
    job.checkpoint()
    with pytest.raises(rt.ConfigurationError) as caught:
        SteppedJob(job_of(each_once(new), sink, 3), tmp_path, restore=LATEST)
    assert re.search(message, str(caught.value))


def test_the_uid_that_the_message_asks_for_lets_the_job_be_restored(tmp_path: Path) -> None:
    sink = TransactionalSink()
    old: Shape = lambda s: s.rebalance().map(lambda n: n + 1).rebalance().map(lambda n: n - 1)  # noqa: E731
    new: Shape = lambda s: (  # noqa: E731
        s.rebalance()
        .map(lambda n: n + 1, uid="map")
        .rebalance()
        .map(lambda n: n - 1, uid="map-2")
        .map(lambda n: n)
    )
    job = SteppedJob(job_of(each_once(old), sink, 3), tmp_path)
    job.clog()
    job.checkpoint()
    with pytest.raises(rt.ConfigurationError, match=r"'map-2 > number:0'.*does not have them"):
        SteppedJob(job_of(each_once(new), sink, 3), tmp_path, restore=LATEST)
    new = lambda s: (  # noqa: E731
        s.map(lambda n: n, name="map")
        .rebalance()
        .map(lambda n: n + 1, uid="map")
        .rebalance()
        .map(lambda n: n - 1, uid="map-2")
    )
    with pytest.raises(rt.ConfigurationError, match=r"'numbers > map:0'.*does not have them"):
        SteppedJob(job_of(each_once(new), sink, 3), tmp_path, restore=LATEST)
    new = lambda s: (  # noqa: E731
        s.rebalance().map(lambda n: n + 1, uid="map").rebalance().map(lambda n: n - 1, uid="map-2")
    )
    SteppedJob(job_of(each_once(new), sink, 2), tmp_path, restore=LATEST).finish()
    numbered_once(sink.rows)


KEPT: dict[str, tuple[Shape, Shape]] = {
    "a function was edited": (
        lambda s: s.rebalance().map(lambda n: n).rebalance().map(lambda n: n),
        lambda s: s.rebalance().map(lambda n: n + 0).rebalance().map(lambda n: n),
    ),
    "another key": (
        lambda s: s.key_by(lambda n: n % 3).map(same, uid="same"),
        lambda s: s.key_by(lambda n: n % 5).map(same, uid="same"),
    ),
    "a broadcast to one": (
        lambda s: s.rebalance().map(same, uid="same"),
        lambda s: s.broadcast().map(same, uid="same", parallelism=1),
    ),
    "in turn becomes straight on": (
        lambda s: s.rebalance().map(same, uid="same"),
        lambda s: s.forward().map(same, uid="same", chain=False),
    ),
    "to one subtask": (
        lambda s: s.broadcast().map(same, uid="same", parallelism=1),
        lambda s: s.rebalance().map(same, uid="same"),
    ),
}


@pytest.mark.parametrize("change", KEPT)
def test_what_can_be_dealt_right_is(change: str, tmp_path: Path) -> None:
    sink, (old, new) = TransactionalSink(), KEPT[change]
    restored(job_of(each_once(old), sink, 3), job_of(each_once(new), sink, 3), tmp_path, turns=4)
    numbered_once(sink.rows)


def test_a_key_that_was_another_one_finds_its_state(tmp_path: Path) -> None:
    """Records in flight are dealt by the key of now, also where parallelism stays."""

    def counted(key: Callable[[int], int]) -> Shape:
        return lambda s: s.key_by(key).process(Number(), uid="number")

    sink = TransactionalSink()
    job = SteppedJob(job_of(counted(lambda n: n % 4), sink, 3), tmp_path)
    job.clog()
    job.checkpoint()
    SteppedJob(job_of(counted(lambda n: n % 7), sink, 3), tmp_path, restore=LATEST).finish()
    assert sorted(number for _, _, number in sink.rows) == [*range(COUNT)]
    for key in range(7):
        of_key = [count for k, count, _ in sink.rows if k == key]
        assert len(of_key) == len({*of_key}), "two subtasks had state of one key"


@pytest.mark.parametrize("after", [2, 4])
def test_records_in_flight_are_broadcast_if_their_edge_is_now(after: int, tmp_path: Path) -> None:
    sink = TransactionalSink()
    old: Shape = lambda s: s.rebalance().map(same, uid="same")  # noqa: E731
    new: Shape = lambda s: s.broadcast().map(same, uid="same")  # noqa: E731
    job = SteppedJob(job_of(each_once(old), sink, 3), tmp_path)
    job.clog()
    held = job.checkpoint()
    in_front = sum(
        data.records or 0
        for captured in held.in_flight
        for data in captured.channels
        if data.link == "numbers > same:0"
    )
    assert in_front > 0
    SteppedJob(job_of(each_once(new), sink, after), tmp_path, restore=LATEST).finish()
    times = Counter(shown(sink).values())
    assert set(times) <= {1, after}
    assert times[1] + in_front <= COUNT
    assert sum(times.values()) == COUNT
