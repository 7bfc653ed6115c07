"""Checkpoints with full queues, restored at another parallelism, in another mode, in another shape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import minirt as rt
from minirt.protocol.manifest import Manifest
from minirt.protocol.restore_options import RestoreOptions
from minirt.testing import TransactionalSink
from tests.runtime.stepped import SteppedJob

COUNT, SPLITS = 350, 7
LATEST = RestoreOptions("latest")

Record = tuple[int, int, int]
"""Key, how many records of the key have come so far, number."""


class Number(rt.KeyedProcess):
    count = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[Record]:
        self.count.value += 1
        yield (ctx.key, self.count.value, record)


class NumberBoth(rt.KeyedCoProcess):
    count = rt.ValueState(0)

    def process_left(self, record: int, ctx: rt.KeyedContext) -> Iterable[Record]:
        self.count.value += 1
        yield (ctx.key, self.count.value, record)

    process_right = process_left


def skewed(n: int) -> int:
    """Nine of ten records have the same key."""
    return n if n % 10 == 0 else -1


def evenly(n: int) -> int:
    return n % 50


def choose(key: int, parallelism: int) -> int:
    return (key * 5 + 1) % parallelism


def same(n: int) -> int:
    return n


Shape = Callable[[rt.Stream], rt.Stream]


def numbered(stream: rt.Stream, key: Callable[[int], int] = skewed) -> rt.Stream:
    return stream.key_by(key).process(Number(), uid="number")


def _twice(stream: rt.Stream) -> rt.Stream:
    return stream.union(stream).map(same, uid="same")


ONCE: dict[str, Shape] = {
    "even keys": lambda s: numbered(s, evenly),
    "skewed keys": numbered,
    "in turn": lambda s: numbered(s.rebalance().map(same, uid="same")),
    "in turn by blocks": lambda s: numbered(s.rescale(ordered=False).map(same, uid="same")),
    "by function": lambda s: numbered(s.partition_custom(choose, same).map(same, uid="same")),
    "straight on": lambda s: numbered(s.forward(ordered=False).map(same, uid="same", chain=False)),
}
TWICE: dict[str, Shape] = {
    "twice to one input": lambda s: numbered(_twice(s.forward(ordered=False))),
    "in two ways to one input": lambda s: numbered(
        s.rebalance().union(s.partition_custom(choose, same)).map(same, uid="same")
    ),
    "to two inputs": lambda s: (
        s.key_by(skewed).connect(s.key_by(skewed)).process(NumberBoth(), uid="number")
    ),
}
SHAPES = ONCE | TWICE


def env_of(shape: Shape, sink: rt.Sink, parallelism: int) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=32)
    source = env.source(rt.SequenceSource(COUNT, splits=SPLITS), uid="numbers")
    shape(source).forward(ordered=False).sink(sink, uid="out", chain=False)
    return env


def clogged(job: SteppedJob) -> Manifest:
    """The checkpoint of a job with records in flight on every link."""
    job.clog()
    manifest = job.checkpoint()
    held = {data.link for captured in manifest.in_flight for data in captured.channels}
    assert held == {job.graph.link_key(link) for link in job.graph.links}
    return manifest


def check(rows: list[Record], *, times: int = 1) -> None:
    """Every number has come out so often, and the counts of its key have no gap."""
    assert Counter(number for _, _, number in rows) == Counter(dict.fromkeys(range(COUNT), times))
    counts = defaultdict(list)
    for key, count, _ in rows:
        counts[key].append(count)
    assert all(sorted(of_key) == [*range(1, len(of_key) + 1)] for of_key in counts.values())


def check_order(rows: list[Record]) -> None:
    """Records of one split and key have kept their order."""
    newest: dict[tuple[int, int], int] = {}
    for key, _, number in sorted(rows, key=lambda row: row[1]):
        place = (key, number * SPLITS // COUNT)
        assert newest.get(place, -1) < number
        newest[place] = number


WIDTHS = pytest.mark.parametrize(
    ("before", "after"), [(7, 3), (3, 7), pytest.param(2, 2, marks=pytest.mark.soak)]
)


@pytest.mark.parametrize("shape", SHAPES)
@WIDTHS
def test_nothing_in_flight_is_lost_or_repeated(
    shape: str, before: int, after: int, tmp_path: Path
) -> None:
    sink = TransactionalSink()
    clogged(SteppedJob(env_of(SHAPES[shape], sink, before), tmp_path))
    SteppedJob(env_of(SHAPES[shape], sink, after), tmp_path, restore=LATEST).finish()
    check(sink.rows, times=2 if shape in TWICE else 1)


@WIDTHS
def test_records_of_a_split_and_key_stay_in_order(before: int, after: int, tmp_path: Path) -> None:
    sink = TransactionalSink()
    clogged(SteppedJob(env_of(numbered, sink, before), tmp_path))
    SteppedJob(env_of(numbered, sink, after), tmp_path, restore=LATEST).finish()
    check_order(sink.rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_left_while_recovering_is_in_flight_again(shape: str, tmp_path: Path) -> None:
    sink, restore = TransactionalSink(), RestoreOptions()
    for parallelism in (7, 3, 1, 7):
        job = SteppedJob(env_of(SHAPES[shape], sink, parallelism), tmp_path, restore=restore)
        job.work(2)
        job.clog()
        assert job.checkpoint().in_flight
        restore = LATEST
    SteppedJob(env_of(SHAPES[shape], sink, 3), tmp_path, restore=LATEST).finish()
    check(sink.rows, times=2 if shape in TWICE else 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "modes",
    [
        ("unaligned", "aligned"),
        pytest.param(("aligned", "unaligned"), marks=pytest.mark.soak),
    ],
)
def test_checkpoints_of_one_mode_restore_into_jobs_of_the_other(
    shape: str, modes: tuple[str, str], tmp_path: Path
) -> None:
    sink, restore = TransactionalSink(), RestoreOptions()
    for parallelism, mode in zip((3, 7), modes, strict=True):
        env = env_of(SHAPES[shape], sink, parallelism)
        job = SteppedJob(env, tmp_path, mode=mode, restore=restore)
        job.clog()
        manifest = job.checkpoint(working=mode == "aligned")
        assert (manifest.mode, bool(manifest.in_flight)) == (mode, mode == "unaligned")
        restore = LATEST
    SteppedJob(env_of(SHAPES[shape], sink, 2), tmp_path, restore=LATEST).finish()
    check(sink.rows, times=2 if shape in TWICE else 1)


def test_an_aligned_checkpoint_waits_for_what_was_recovered(tmp_path: Path) -> None:
    sink = TransactionalSink()
    clogged(SteppedJob(env_of(numbered, sink, 2), tmp_path))
    job = SteppedJob(env_of(numbered, sink, 2), tmp_path, mode="aligned", restore=LATEST)
    with pytest.raises(AssertionError, match="does not complete"):
        job.checkpoint()


RESHAPED: dict[str, tuple[Shape, Shape]] = {
    "a chain becomes a shuffle": (
        lambda s: numbered(s.map(same, uid="same")),
        lambda s: numbered(s.rebalance().map(same, uid="same")),
    ),
    "in turn becomes by function": (ONCE["in turn"], ONCE["by function"]),
    "by function becomes in turn": (ONCE["by function"], ONCE["in turn"]),
    "straight on becomes in turn": (ONCE["straight on"], ONCE["in turn"]),
    "another function": (
        ONCE["by function"],
        lambda s: numbered(
            s.partition_custom(lambda key, n: (key * 3) % n, same).map(same, uid="same")
        ),
    ),
}


@pytest.mark.parametrize("change", RESHAPED)
@WIDTHS
def test_a_job_may_deal_its_records_otherwise_than_before(
    change: str, before: int, after: int, tmp_path: Path
) -> None:
    sink, (old, new) = TransactionalSink(), RESHAPED[change]
    clogged(SteppedJob(env_of(old, sink, before), tmp_path))
    SteppedJob(env_of(new, sink, after), tmp_path, restore=LATEST).finish()
    check(sink.rows)


class Tag(rt.Process):
    """Says which subtask of which run has seen a record."""

    def __init__(self, run: str) -> None:
        self.run = run

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[tuple[str, int, int]]:
        yield (self.run, ctx.subtask, record)


@pytest.mark.parametrize("after", [5, 2, 1])
def test_each_subtask_of_a_broadcast_goes_on_where_an_old_one_was(
    after: int, tmp_path: Path
) -> None:
    sink = TransactionalSink()

    def env(run: str, parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=32)
        numbers = env.source(rt.SequenceSource(COUNT, splits=1), uid="numbers", parallelism=1)
        tagged = numbers.broadcast().process(Tag(run), uid="tag", parallelism=parallelism)
        tagged.forward(ordered=False).sink(sink, uid="out", chain=False)
        return env

    job = SteppedJob(env("old", 2), tmp_path)
    job.work(40)
    clogged(job)
    SteppedJob(env("new", after), tmp_path, restore=LATEST).finish()
    seen = defaultdict(list)
    for run, subtask, number in sink.rows:
        seen[run, subtask].append(number)
    for subtask in range(after):
        assert seen["old", subtask % 2] + seen["new", subtask] == [*range(COUNT)]
