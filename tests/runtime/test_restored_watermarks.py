"""The watermark that an operator sees after a restore: measured anew, or the one it had."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

import minirt as rt
from minirt.protocol.manifest import Manifest
from minirt.protocol.restore_options import RestoreOptions
from minirt.testing import TransactionalSink
from tests.runtime.stepped import SteppedJob

COUNT = 300
LATEST = RestoreOptions("latest")
Choice = Literal["regenerated", "restored"]


Row = tuple[int, int | None, str]
"""A number, the watermark when it came, and the run in which it came."""


class Stamp(rt.Process):
    def __init__(self, run: str) -> None:
        self.run = run

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[Row]:
        assert ctx.watermark is None or ctx.watermark < record, "a record has come late"
        yield (record, ctx.watermark, self.run)


class Alarm(rt.KeyedProcess):
    """Emits each record once event time is 5 ms past it."""

    def __init__(self, run: str) -> None:
        self.run = run

    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        assert ctx.watermark is None or ctx.watermark < record, "a record has come late"
        ctx.set_timer(record + 5)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Row]:
        yield (timestamp - 5, ctx.watermark, self.run)


def by_number(n: int) -> int:
    return n


def fourth(n: int) -> int:
    return n % 4


class Interleaved(rt.Source):
    """Split i of n holds every n-th number, from the i-th on; event time is the number."""

    interleave = True

    def __init__(self, splits: int) -> None:
        self.splits = splits

    def plan_splits(self, parallelism: int) -> list[rt.Split]:
        return [rt.Split(f"from-{first}", {"first": first}) for first in range(self.splits)]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(range(split.info["first"], COUNT, self.splits), offset or 0)


class _Reader(rt.SplitReader):
    def __init__(self, numbers: range, offset: int) -> None:
        self._numbers = numbers
        self.offset = offset

    def read(self) -> list[int] | None:
        batch = [*self._numbers[self.offset : self.offset + 2]]
        self.offset += len(batch)
        return batch or None


def env_of(
    sink: rt.Sink, parallelism: int = 2, *, operator: str = "stamp", run: str = "old"
) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=32)
    watermarks = rt.Watermarks.monotonous(timestamp=by_number)
    numbers = env.source(Interleaved(6), uid="numbers", watermarks=watermarks)
    if operator == "stamp":
        out = numbers.rebalance().process(Stamp(run), uid="stamp")
    elif operator == "at the source":
        out = numbers.process(Stamp(run), uid="stamp")
    else:
        out = numbers.key_by(fourth).process(Alarm(run), uid="alarm")
    out.forward(ordered=False).sink(sink, uid="out", chain=False)
    return env


def stopped(
    sink: TransactionalSink, folder: Path, *, parallelism: int = 2, operator: str = "stamp"
) -> Manifest:
    """The checkpoint of a job that has stopped in full flow."""
    job = SteppedJob(env_of(sink, parallelism, operator=operator), folder)
    job.work(60)
    job.clog()
    return job.checkpoint()


def restored(sink: TransactionalSink, folder: Path, watermarks: Choice, **form: Any) -> list[Row]:
    """What the operator emits after the restore."""
    env = env_of(sink, run="new", **form)
    SteppedJob(env, folder, restore=LATEST, watermarks=watermarks).finish()
    assert sorted(record for record, _, _ in sink.rows) == [*range(COUNT)]
    return [row for row in sink.rows if row[-1] == "new"]


OPERATORS = {"stamp": "stamp", "at the source": "numbers"}
"""With the uid of the first operator of its chain."""


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_restored_watermark_is_there_for_the_first_record(operator: str, tmp_path: Path) -> None:
    sink = TransactionalSink()
    stored = stopped(sink, tmp_path, operator=operator).watermarks
    had = [one.watermark for one in stored if one.head == OPERATORS[operator]]
    rows = restored(sink, tmp_path, "restored", operator=operator)
    assert min(stamp or -1 for _, stamp, _ in rows) >= min(known or -1 for known in had) > 0


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_regenerated_watermark_is_not_there_for_the_first_records(
    operator: str, tmp_path: Path
) -> None:
    sink = TransactionalSink()
    stopped(sink, tmp_path, operator=operator)
    rows = restored(sink, tmp_path, "regenerated", operator=operator)
    assert any(stamp is None for _, stamp, _ in rows)


def test_timers_that_had_not_fired_yet_fire_in_order(tmp_path: Path) -> None:
    sink = TransactionalSink()
    stopped(sink, tmp_path, operator="alarm")
    rows = restored(sink, tmp_path, "restored", operator="alarm")
    for key in range(4):
        fired = [record for record, _, _ in rows if fourth(record) == key]
        assert fired == sorted(fired)


@pytest.mark.parametrize("after", [1, 3, 7])
@pytest.mark.parametrize("operator", ["stamp", "at the source", "alarm"])
@pytest.mark.parametrize("watermarks", ["regenerated", "restored"])
def test_nothing_comes_late_at_another_parallelism(
    watermarks: Choice, operator: str, after: int, tmp_path: Path
) -> None:
    sink = TransactionalSink()
    stopped(sink, tmp_path, operator=operator)
    restored(sink, tmp_path, watermarks, parallelism=after, operator=operator)


def test_a_checkpoint_right_after_the_restore_holds_the_watermarks_again(tmp_path: Path) -> None:
    sink = TransactionalSink()
    first = stopped(sink, tmp_path)
    job = SteppedJob(env_of(sink), tmp_path, restore=LATEST, watermarks="restored")
    assert job.checkpoint().watermarks == first.watermarks
    assert any(one.watermark is not None for one in first.watermarks)


def test_without_being_asked_nothing_is_restored(tmp_path: Path) -> None:
    sink = TransactionalSink()
    stopped(sink, tmp_path)
    job = SteppedJob(env_of(sink), tmp_path, restore=LATEST)
    assert all(one.watermark is None for one in job.checkpoint().watermarks)


@pytest.mark.parametrize("value", ["stored", None, True])
def test_another_choice_is_refused(value: Any) -> None:
    with pytest.raises(
        rt.ConfigurationError, match="watermarks must be one of regenerated, restored"
    ):
        rt.Checkpointing("memory://x", watermarks=value)
