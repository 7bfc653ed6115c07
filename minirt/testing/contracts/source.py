"""What every source must keep to; the tests of a source inherit these."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from minirt.data.copies import copied
from minirt.io import Source, Split


class SourceContract(ABC):
    """Tests over `source`, a bounded source of a few splits that together hold `expected`."""

    @pytest.fixture
    @abstractmethod
    def source(self) -> Source: ...

    @pytest.fixture
    @abstractmethod
    def expected(self) -> list[Any]: ...

    def test_splits_together_give_every_record_exactly_once(
        self, source: Source, expected: list[Any]
    ) -> None:
        for parallelism in (1, 2, 5):
            splits = source.plan_splits(parallelism)
            assert [row for split in splits for row in read_all(source, split)] == expected

    def test_has_more_than_one_split(self, source: Source) -> None:
        """Otherwise the other tests would not see what happens at the seams."""
        assert len(source.plan_splits(4)) > 1

    def test_reading_on_from_any_offset_gives_the_same_tail(self, source: Source) -> None:
        for split in source.plan_splits(2):
            whole = read_all(source, split)
            for offset, seen in positions(source, split):
                carried = msgpack.unpackb(msgpack.packb(offset))
                assert read_all(source, split, carried) == whole[seen:]

    def test_records_that_were_read_are_their_readers(
        self, source: Source, expected: list[Any]
    ) -> None:
        """Whoever reads a record may change it: the source has no other use for it."""
        rows: list[Any] = []
        for split in source.plan_splits(2):
            reader = source.open_split(split, None)
            while (batch := reader.read()) is not None:
                for row in batch if isinstance(batch, list) else batch.to_pylist():
                    rows.append(copied(row))
                    _use_up(row)
                if isinstance(batch, list):
                    batch.clear()
            reader.close()
        assert rows == expected
        assert [
            row for split in source.plan_splits(2) for row in read_all(source, split)
        ] == expected

    def test_splits_survive_the_way_through_a_checkpoint(
        self, source: Source, expected: list[Any]
    ) -> None:
        splits = source.plan_splits(2)
        stored = msgpack.packb([(split.id, dict(split.info)) for split in splits])
        restored = [Split(id, info) for id, info in msgpack.unpackb(stored)]
        assert [row for split in restored for row in read_all(source, split)] == expected

    def test_split_ids_are_unique_and_stable(self, source: Source) -> None:
        ids = [split.id for split in source.plan_splits(3)]
        assert len(set(ids)) == len(ids)
        assert [split.id for split in source.plan_splits(3)] == ids

    def test_a_pickled_copy_reads_the_same(self, source: Source, expected: list[Any]) -> None:
        splits = source.plan_splits(2)
        copy = pickle.loads(pickle.dumps(source))
        assert [row for split in splits for row in read_all(copy, split)] == expected

    def test_validates(self, source: Source) -> None:
        source.validate()

    def test_batches_have_the_schema_it_announces(self, source: Source) -> None:
        schema = source.schema()
        if schema is None:
            pytest.skip("the source does not know its columns")
        for split in source.plan_splits(2):
            reader = source.open_split(split, None)
            while (batch := reader.read()) is not None:
                assert isinstance(batch, pa.RecordBatch)
                assert batch.schema.equals(schema)
            reader.close()


def _use_up(record: Any) -> None:
    if isinstance(record, dict | list | set | bytearray):
        record.clear()


def read_all(source: Source, split: Split, offset: Any = None) -> list[Any]:
    """All records of a split from `offset` on."""
    reader = source.open_split(split, offset)
    try:
        rows: list[Any] = []
        while (batch := reader.read()) is not None:
            rows += batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
        return rows
    finally:
        reader.close()


def positions(source: Source, split: Split) -> list[tuple[Any, int]]:
    """Every offset that the reader passes, with the number of records before it."""
    reader = source.open_split(split, None)
    passed = [(None, 0), (reader.offset, 0)]
    seen = 0
    while (batch := reader.read()) is not None:
        seen += len(batch)
        passed.append((reader.offset, seen))
    reader.close()
    return passed
