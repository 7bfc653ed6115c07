"""Collections and sequences as sources."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from minirt.errors import ConfigurationError
from minirt.io import CollectionSource, SequenceSource, Source
from minirt.testing.contracts import SourceContract, read_all


class TestCollectionSource(SourceContract):
    @pytest.fixture
    def source(self) -> Source:
        return CollectionSource(({"id": i} for i in range(20_000)), splits=2)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [{"id": i} for i in range(20_000)]


class TestTable(SourceContract):
    @pytest.fixture
    def source(self) -> Source:
        half = pa.table({"id": range(10_000), "word": ["x"] * 10_000})
        return CollectionSource(pa.concat_tables([half, half]), splits=2)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [{"id": i, "word": "x"} for _ in range(2) for i in range(10_000)]


class TestSequenceSource(SourceContract):
    @pytest.fixture
    def source(self) -> Source:
        return SequenceSource(-5, 40_000)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return list(range(-5, 40_000))


def test_one_number_is_the_end_as_with_range() -> None:
    source = SequenceSource(3)
    assert source.bounded
    assert [read_all(source, split) for split in source.plan_splits(1)] == [[0, 1, 2]]


@pytest.mark.parametrize("source", [SequenceSource(0), CollectionSource([], splits=3)])
def test_nothing_to_read_needs_no_split(source: Source) -> None:
    assert source.plan_splits(2) == []


def test_an_endless_sequence_gives_every_number_once_from_where_it_stopped() -> None:
    source = SequenceSource.endless(10)
    assert not source.bounded
    found: list[int] = []
    for split in source.plan_splits(2):
        reader = source.open_split(split, None)
        found += reader.read() or []
        again = source.open_split(split, reader.offset)
        found += again.read() or []
    assert sorted(found) == list(range(10, 10 + len(found)))


def test_what_is_no_whole_number_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="stop must be a whole number"):
        SequenceSource(1.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="splits"):
        SequenceSource(5, splits=0)
    with pytest.raises(ConfigurationError, match="splits"):
        CollectionSource([1], splits=0)


def test_record_batches_are_read_as_columns_in_order() -> None:
    batches = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})]
    for records in (batches, batches[0]):
        source = CollectionSource(records)
        assert source.schema() == batches[0].schema
        [split] = source.plan_splits(2)
        assert [r["n"] for r in read_all(source, split)] == [1, 2, 3][
            : 3 if records == batches else 2
        ]


@pytest.mark.parametrize("other", [pa.record_batch({"m": [1]}), {"n": 1}])
def test_record_batches_of_several_schemas_are_refused(other: Any) -> None:
    with pytest.raises(ConfigurationError, match="must all be of one schema"):
        CollectionSource([pa.record_batch({"n": [1]}), other])
