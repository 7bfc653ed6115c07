"""The generator as a source: splits, offsets, and what a job reads."""

from __future__ import annotations

from typing import Any

import pytest

import minirt as rt
from benchmarks.nexmark.source import NexmarkSource
from minirt.io import Source
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.workload import Workload
from minirt.testing.contracts import SourceContract, read_all

WORKLOAD = Workload(seed=3)


def rows_at(*ranges: tuple[int, int]) -> list[dict[str, Any]]:
    return [
        row
        for start, stop in ranges
        for row in generator(WORKLOAD).events("all", start, stop).to_pylist()
    ]


class TestNexmarkSource(SourceContract):
    @pytest.fixture
    def source(self) -> Source:
        return NexmarkSource(95, workload=WORKLOAD, splits=2, block_events=20)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return rows_at((0, 20), (40, 60), (80, 95), (20, 40), (60, 80))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
def test_events_do_not_depend_on_parallelism(parallelism: int) -> None:
    source = NexmarkSource(1000, "bid", workload=WORKLOAD, block_events=64)
    splits = source.plan_splits(parallelism)
    assert len(splits) == parallelism
    read = [row for split in splits for row in read_all(source, split)]
    expected = generator(WORKLOAD).events("bid", 0, 1000).to_pylist()
    assert sorted(read, key=repr) == sorted(expected, key=repr)


def test_reading_goes_on_at_any_event() -> None:
    source = NexmarkSource(95, workload=WORKLOAD, splits=2, block_events=20)
    second = source.plan_splits(2)[1]
    for offset in range(20, 40):
        assert read_all(source, second, offset) == rows_at((offset, 40), (60, 80))


def test_blocks_without_the_wanted_kind_are_passed_over() -> None:
    """An empty batch would make the source wait, as if nothing had come yet."""
    source = NexmarkSource(120, "person", workload=WORKLOAD, block_events=10)
    reader = source.open_split(source.plan_splits(1)[0], None)
    sizes = []
    while (batch := reader.read()) is not None:
        sizes.append(len(batch))
    assert sizes == [1, 1, 1]


def test_no_split_is_empty() -> None:
    assert len(NexmarkSource(25, block_events=10).plan_splits(8)) == 3


def test_no_bid_is_late_where_a_subtask_reads_several_splits() -> None:
    env = rt.Environment(parallelism=2)
    sink = rt.CollectSink()
    source = NexmarkSource(500, "bid", workload=WORKLOAD, splits=5, block_events=30)
    (
        env.source(source, watermarks=rt.Watermarks.monotonous(timestamp="dateTime"))
        .key_by("auction")
        .process(LateBids())
        .sink(sink)
    )
    at_once = rt.Options(limits=rt.Limits(watermark_interval_s=1e-9))
    env.execute(runner="inline", options=at_once)
    assert len(sink.rows) == 460
    assert not any(sink.rows)


class LateBids(rt.KeyedProcess):
    def process(self, record: dict[str, Any], ctx: rt.KeyedContext) -> list[bool]:
        assert ctx.timestamp is not None
        return [ctx.watermark is not None and ctx.timestamp <= ctx.watermark]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"events": 0}, "events"),
        ({"events": 1, "kind": "bids"}, "kind"),
        ({"events": 1, "splits": 0}, "splits"),
        ({"events": 1, "block_events": 0}, "block_events"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        NexmarkSource(**arguments)
