"""The input that reads a source, by itself: which split is read next, and when it says that it is idle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.data.codec import RowCodec
from minirt.graph.operator_spec import Reading as ReadingSpec
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.operators.common.base import OperatorContext
from minirt.protocol.restore_options import RestoreOptions
from minirt.runtime.input import splits as of_splits
from minirt.runtime.input.elements import Advance, Data, Element, End
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.recovered import RestoredInput
from minirt.runtime.input.source_input import SourceInput
from minirt.runtime.input.splits import OPEN_MAX, Runs
from minirt.testing import TransactionalSink
from minirt.watermarks import Emission
from tests.runtime.stepped import SteppedJob

POLL_S, TIMEOUT_S = 0.01, 0.2


class Scripted(rt.Source):
    """Splits that bring what a script says, one item a call: records, nothing for now, or the end."""

    def __init__(self, *splits: Sequence[Any], bounded: bool = True) -> None:
        self.bounded = bounded
        self.script = splits

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(str(place), {"place": place}) for place in range(len(self.script))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self.script[split.info["place"]])


class _Reader(rt.SplitReader):
    def __init__(self, script: Sequence[Any]) -> None:
        self.offset = 0
        self._script = iter(script)

    def read(self) -> Any:
        item = next(self._script, None)
        return item() if callable(item) else item


class Reading:
    """A source that is read with a monotonic clock that the test moves; the wall clock stands still."""

    def __init__(
        self,
        source: rt.Source,
        *,
        timed: bool = True,
        speed: float | None = None,
        often: Emission = "periodic",
    ) -> None:
        self.now = 1000.0
        time, emit = lambda: self.now, lambda _: None
        ctx = OperatorContext(
            "s", "s", 0, 1, 8, 1, time, False, emit, lambda _: emit, monotonic=time
        )
        marks = rt.Watermarks.monotonous(timestamp=lambda n: n, idle_timeout=TIMEOUT_S, emit=often)
        ctx = replace(
            ctx,
            splits=list(enumerate(source.plan_splits(1))),
            watermark_interval_s=0.02,
            source_poll_s=POLL_S,
        )
        parts = InputParts({}, RowCodec(), SubtaskMetrics(), RestoredInput())
        self.input = SourceInput(ctx, ReadingSpec(source, marks if timed else None, speed), parts)

    def poll(self) -> Element | None:
        element = self.input.poll()
        if isinstance(element, Data):
            self.input.consumed(len(element.batch))
        return element

    def records(self, count: int) -> list[Any]:
        """The next so many runs of records, whatever comes between."""
        runs: list[Any] = []
        while len(runs) < count:
            element = self.poll()
            assert not isinstance(element, End)
            if isinstance(element, Data):
                runs.append(element.batch.rows().records)
            elif element is None:
                self.now += POLL_S
        return runs

    def turns(self, seconds: float) -> list[bool]:
        """Poll whenever that is asked for, for so long: what the source says about being idle."""
        end, told = self.now + seconds, []
        while self.now < end:
            element = self.poll()
            if isinstance(element, Advance) and element.idle is not None:
                told.append(element.idle)
            if element is None:
                assert self.input.wake_at is not None
                self.now = max(self.now + 1e-6, self.input.wake_at)
        return told


def silent(times: int) -> list[list[Any]]:
    return [[]] * times


def test_only_what_advances_the_watermark_of_all_splits_ends_a_run() -> None:
    source = Scripted([[1], [], [2], None], [[10, 20, 30, 40], None])
    source.interleave = True
    assert Reading(source).records(3) == [[1], [10, 20, 30, 40], [2]]
    by_record = Reading(source, often="per record")
    assert by_record.records(4) == [[1], [10], [20, 30, 40], [2]]


def test_a_source_that_is_asked_in_vain_for_its_timeout_is_idle() -> None:
    reading = Reading(Scripted([[1], *silent(1000)]))
    assert reading.turns(0.9 * TIMEOUT_S) == []
    assert reading.turns(0.3 * TIMEOUT_S) == [True]


def in_turn(*splits: Sequence[Any]) -> Scripted:
    source = Scripted(*splits)
    source.interleave = False
    return source


def test_splits_that_are_not_yet_begun_are_not_silent() -> None:
    """Read one after another, the second may bring records whenever the first has ended."""
    reading = Reading(in_turn([[1], [2], None], [[3], [4], None]))
    assert reading.records(2) == [[1], [2]]
    for _ in range(6):
        reading.now += 10
        element = reading.poll()
        assert not isinstance(element, Advance) or not element.idle


def test_behind_a_silent_split_others_wait_that_are_not_yet_begun() -> None:
    reading = Reading(in_turn([[1], *silent(1000)], [[3], None]))
    assert reading.turns(3 * TIMEOUT_S) == []


@pytest.mark.parametrize("calls", [1, 3])
def test_time_in_which_nobody_asks_is_no_silence(calls: int) -> None:
    """Between two calls the subtask is busy, paused, or has no room for output."""
    reading = Reading(Scripted([[1], *silent(2 * calls), [2], *silent(100)]))
    assert reading.records(1) == [[1]]
    for _ in range(calls):
        reading.now += 10 * TIMEOUT_S
        element = reading.poll()
        assert not isinstance(element, Advance) or not element.idle


def test_a_reader_that_blocks_is_asked_all_the_time() -> None:
    reading: Reading

    def block() -> list[Any]:
        reading.now += 0.6 * TIMEOUT_S
        return []

    reading = Reading(Scripted([[1], block, block, block]))
    assert reading.records(1) == [[1]]
    told = [reading.poll() for _ in range(4)]
    assert any(isinstance(element, Advance) and element.idle for element in told)


def test_a_source_is_active_again_ahead_of_its_records() -> None:
    script: list[Any] = [[1], *silent(40)]
    reading = Reading(Scripted([*script, [2]]))
    assert reading.turns(TIMEOUT_S + 3 * POLL_S) == [True]
    elements = []
    while not elements or not isinstance(elements[-1], Data):
        elements.append(reading.poll())
        reading.now += POLL_S
    told = [element for element in elements if element is not None]
    assert [type(element) for element in told] == [Advance, Data]
    assert told[0] == Advance(None, False)


def test_records_that_are_not_due_are_no_silence() -> None:
    reading = Reading(Scripted([[0, 10_000], None]), speed=1.0)
    assert reading.turns(5) == []


def test_of_splits_read_side_by_side_the_silent_ones_hold_nothing_back() -> None:
    source = Scripted([[5], *silent(10_000)], [[n] for n in range(10_000)])
    source.interleave = True
    reading = Reading(source)
    marks: list[int] = []
    while reading.now < 1000 + 2 * TIMEOUT_S:
        element = reading.poll()
        if isinstance(element, Advance) and element.watermark is not None:
            marks.append(element.watermark)
        reading.now += 0.001
    assert marks[-1] > 5


@pytest.mark.parametrize("empty", range(3))
def test_splits_that_fall_silent_at_once_have_event_time_come_as_far_as_one_by_one(
    empty: int,
) -> None:
    scripts: list[list[Any]] = [[[4, 6], *silent(10_000)], [[5, 7], *silent(10_000)]]
    scripts.insert(empty, silent(10_000))
    source = Scripted(*scripts)
    source.interleave = True
    reading = Reading(source)
    told: list[Advance] = []
    while reading.now < 1000 + 2 * TIMEOUT_S:
        element = reading.poll()
        if isinstance(element, Advance):
            told.append(element)
        elif element is None:
            reading.now += POLL_S
    assert told == [Advance(6, True)]


Events = list[tuple[float, int]]


def told_at_last(splits: Sequence[Events], *, unbounded: bool) -> int | None:
    """The watermark once all splits are silent, each of which brings its records at these times."""
    reading: Reading

    def script(events: Events) -> Iterable[Any]:
        upcoming = sorted(events)
        while True:
            due = [at for when, at in upcoming if reading.now >= 1000 + when]
            upcoming = upcoming[len(due) :]
            yield due

    source = Scripted(*(script(events) for events in splits), bounded=not unbounded)
    reading = Reading(source)
    told = None
    while reading.now < 1000 + 10 * TIMEOUT_S:
        element = reading.poll()
        if isinstance(element, Advance) and element.watermark is not None:
            assert told is None or element.watermark > told
            told = element.watermark
        elif element is None:
            reading.now += POLL_S
    return told


@settings(deadline=None, max_examples=60)
@given(
    splits=st.lists(
        st.lists(st.tuples(st.floats(0, 6 * TIMEOUT_S), st.integers(0, 50)), max_size=4),
        min_size=1,
        max_size=4,
    ),
    unbounded=st.booleans(),
)
def test_event_time_comes_as_far_as_any_split_in_whatever_order_they_fall_silent(
    splits: list[Events], unbounded: bool
) -> None:
    times = [at for events in splits for _, at in events]
    assert told_at_last(splits, unbounded=unbounded) == max((at - 1 for at in times), default=None)


class Counted(rt.Source):
    """Bounded splits, of which it knows how many are open."""

    def __init__(self, splits: Sequence[Sequence[int]], batch: int) -> None:
        self.splits, self.batch = splits, batch
        self.opened, self.opened_at_most, self.openings = 0, 0, 0

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(str(place), {"place": place}) for place in range(len(self.splits))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        self.opened += 1
        self.openings += 1
        self.opened_at_most = max(self.opened, self.opened_at_most)
        return _CountedReader(self, self.splits[split.info["place"]], offset or 0)


class _CountedReader(rt.SplitReader):
    def __init__(self, source: Counted, records: Sequence[int], offset: int) -> None:
        self.offset, self._source, self._records = offset, source, records

    def read(self) -> Any:
        start, self.offset = self.offset, self.offset + self._source.batch
        return [*self._records[start : self.offset]] or None

    def close(self) -> None:
        self._source.opened -= 1


@pytest.mark.parametrize("overlap", [True, False], ids=["of one time", "one after the other"])
def test_of_many_splits_few_are_open_and_each_is_opened_seldom(overlap: bool) -> None:
    count, length, batch = 100, 300, 3
    starts = [0 if overlap else split * length for split in range(count)]
    source = Counted([range(start, start + length) for start in starts], batch)
    reading = Reading(source)
    found: list[int] = []
    while not isinstance(element := reading.poll(), End):
        if isinstance(element, Data):
            found += element.batch.rows().records
            watermark = reading.input.watermarks()[0]
            assert watermark is None or min(element.batch.rows().records) > watermark
    assert sorted(found) == sorted(n for split in source.splits for n in split)
    assert source.opened == 0
    assert source.opened_at_most <= OPEN_MAX + 1
    assert source.openings <= count * (2 + (length // batch).bit_length())
    if not overlap:
        assert found == sorted(found)
        assert source.openings <= 2 * count


class Waiting(Counted):
    """Bounded splits of which some have nothing for now, whenever they are asked."""

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        if not self.splits[split.info["place"]]:
            self.opened += 1
            return _WaitingReader(self)
        return super().open_split(split, offset)


class _WaitingReader(rt.SplitReader):
    offset = 0

    def __init__(self, source: Waiting) -> None:
        self._source = source

    def read(self) -> Any:
        return []

    def close(self) -> None:
        self._source.opened -= 1


@settings(deadline=None, max_examples=60)
@example(silent=8, starts=[0], opened=(8, 32), random=Random(1))
@given(
    silent=st.integers(0, 8),
    starts=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    opened=st.tuples(st.integers(0, 3), st.integers(1, 5)),
    random=st.randoms(use_true_random=False),
)
def test_splits_without_records_keep_no_other_from_giving_out_its_own(
    silent: int, starts: list[int], opened: tuple[int, int], random: Random
) -> None:
    splits: list[Sequence[int]] = [range(start, start + 4) for start in starts] + [()] * silent
    random.shuffle(splits)
    source = Waiting(splits, 2)
    reading = Reading(source)
    found: list[int] = []
    with mock.patch.multiple(of_splits, OPEN_AHEAD_MAX=opened[0], OPEN_MAX=opened[1]):
        for _ in range(40 * len(splits)):
            element = reading.poll()
            if isinstance(element, Data):
                found += element.batch.rows().records
            elif element is None:
                reading.now += POLL_S
    assert sorted(found) == sorted(n for split in splits for n in split)
    assert source.opened_at_most <= max(opened[1], opened[0] + 1) + 2


def test_the_earliest_event_time_is_read_first_whatever_its_number() -> None:
    source = Scripted([[1], [2], None], [[0], [0], [0], [3], None], [[-5], [-4], [7], None])
    source.interleave = True
    runs = Reading(source).records(9)
    assert [n for run in runs for n in run] == [1, 0, -5, -4, 7, 0, 0, 3, 2]


def test_unbounded_splits_are_read_side_by_side_by_default() -> None:
    splits = [[[place]] * 50 for place in range(4)]
    reading = Reading(Scripted(*splits, bounded=False))
    assert sorted(run[0] for run in reading.records(4)) == [0, 1, 2, 3]


def runs_of(*seconds: float, splits: int = 1, waiting: int = 100_000) -> list[int]:
    """The runs of columns if each takes so many seconds."""
    runs, now, found = Runs(), 0.0, []
    for took_s in (*seconds, 0):
        runs.look(splits, now)
        found.append(runs.cut(waiting, now, columns=True))
        now += took_s
    return found


def test_runs_of_a_split_that_is_alone_grow_while_they_take_little_time() -> None:
    assert runs_of(0.001, 0.001, 0.001) == [1024, 2048, 4096, 8192]
    assert runs_of(0.001, 0.001, 0.015, 0.5, 0.5, 0.5) == [1024, 2048, 4096, 4096, 2048, 1024, 1024]
    assert runs_of(*[0.001] * 20)[-1] == 64 * 1024
    assert runs_of(0.001, 0.001, splits=2) == [1024] * 3


def test_a_run_that_is_short_for_lack_of_records_says_nothing_of_its_length() -> None:
    assert runs_of(0.001, 0.001, waiting=1000) == [1000] * 3
    runs = Runs()
    assert runs.cut(5000, 0.0, columns=True) == 1024
    runs.look(2, 0.001)
    runs.look(1, 0.002)
    assert runs.cut(5000, 0.002, columns=True) == 1024


def test_splits_without_event_time_take_turns() -> None:
    splits = [[[place]] * 50 for place in range(4)]
    reading = Reading(Scripted(*splits, bounded=False), timed=False)
    assert [run[0] for run in reading.records(8)] == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 5])
def test_no_split_of_an_unbounded_source_is_forgotten(parallelism: int, tmp_path: Path) -> None:
    sink = TransactionalSink()

    def job_of(width: int) -> rt.Environment:
        env = rt.Environment(parallelism=width)
        env.source(rt.SequenceSource.endless(splits=4), uid="n").sink(sink, uid="out")
        return env

    job = SteppedJob(job_of(4), tmp_path)
    job.work(40)
    job.checkpoint()
    seen = len(sink.rows)
    later = SteppedJob(job_of(parallelism), tmp_path, restore=RestoreOptions("latest"))
    later.work(5000)
    later.checkpoint()
    assert {number % 4 for number in sink.rows[seen:]} == {0, 1, 2, 3}
    assert len(set(sink.rows)) == len(sink.rows)


class Unstorable(Scripted):
    """Its offsets are no values that a checkpoint can hold."""

    def __init__(self, offset: Any) -> None:
        super().__init__([[1], [2]])
        self._offset = offset

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        reader = _Reader(self.script[0])
        reader.offset = self._offset
        return reader


@pytest.mark.parametrize("offset", ["a\ud800", 2**64, (1, object())], ids=["text", "int", "object"])
def test_an_offset_that_cannot_be_stored_names_source_and_split(
    offset: Any, tmp_path: Path
) -> None:
    env = rt.Environment()
    env.source(Unstorable(offset), uid="odd", name="odd").sink(rt.CollectSink(), uid="out")
    job = SteppedJob(env, tmp_path)
    job.work(3)
    with pytest.raises(rt.UserCodeError, match=r"odd.*offsets of its splits cannot be stored.*'0'"):
        job.checkpoint()


def test_the_source_says_how_its_splits_are_read() -> None:
    unbounded = Scripted([], bounded=False)
    assert unbounded.reads_side_by_side
    unbounded.interleave = False
    assert not unbounded.reads_side_by_side
    assert not Scripted([]).reads_side_by_side
    assert rt.SequenceSource.endless().reads_side_by_side
    assert not rt.SequenceSource(5).reads_side_by_side
