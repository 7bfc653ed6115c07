"""The folder in which micro-batches land: read in order, exactly once, from any offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.errors import SourceDataError
from minirt_connectors.spark.landing import LandedReader, Landing, Passing

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def land(landing: Landing, number: int, *splits: list[int]) -> None:
    """A batch with these ids for each split; Spark writes no file for a split without any."""
    aside = landing.folder / ".landing-x"
    aside.mkdir()
    for split, ids in enumerate(splits):
        if ids:
            table = pa.table({"id": ids}, SCHEMA)
            pq.write_table(table, aside / f"part-{split:05}-x.parquet", row_group_size=2)
    landing.publish(aside, number)


def reader_of(landing: Landing, split: int = 0, offset: Any = None) -> LandedReader:
    return LandedReader(landing, split, SCHEMA, offset)


def read(reader: LandedReader, reads: int = 20) -> list[tuple[int, Any]]:
    """The ids that come in so many reads, each batch with the offset behind it."""
    found: list[tuple[int, Any]] = []
    for _ in range(reads):
        reader._look_at = 0.0
        batch = reader.read()
        ids = batch.to_pydict()["id"] if isinstance(batch, pa.RecordBatch) else []
        found += [(one, reader.offset) for one in ids]
    return found


def test_batches_are_read_in_the_order_of_their_numbers(landing: Landing) -> None:
    for number in (0, 1, 2, 10):
        land(landing, number, [number * 10, number * 10 + 1, number * 10 + 2], [5])
    assert [one for one, _ in read(reader_of(landing))] == [
        0, 1, 2, 10, 11, 12, 20, 21, 22, 100, 101, 102,
    ]  # fmt: skip


def test_a_reader_waits_for_the_next_batch_and_passes_over_those_without_rows(
    landing: Landing,
) -> None:
    reader = reader_of(landing, split=1)
    assert read(reader) == []
    land(landing, 0, [1], [])
    assert read(reader) == []
    assert reader.offset == [1, None]
    land(landing, 1, [2], [3])
    assert [one for one, _ in read(reader)] == [3]
    assert reader.offset == [2, None]


def test_from_each_offset_the_rest_is_read_and_nothing_else(landing: Landing) -> None:
    land(landing, 0, [0, 1, 2, 3, 4])
    land(landing, 1, [])
    land(landing, 2, [5, 6])
    seen = read(reader_of(landing))
    assert [one for one, _ in seen] == list(range(7))
    for last, offset in seen:
        if (last, offset) != seen[-1] and seen[last + 1][1] == offset:
            continue  # In the middle of a batch of rows.
        assert [one for one, _ in read(reader_of(landing, offset=offset))] == [*range(last + 1, 7)]


def test_what_has_landed_before_a_failure_is_read(landing: Landing) -> None:
    landing.begin("run 2")
    land(landing, 0, [7])
    landing.fail("run 1", "late news of an earlier run")
    reader = reader_of(landing)
    landing.fail("run 2", "bad row")
    with pytest.raises(SourceDataError, match="has failed: bad row"):
        read(reader)
    assert reader.offset == [1, None]
    landing.begin("run 3")
    assert read(reader_of(landing, offset=[1, None])) == []


def test_batches_go_when_every_split_has_passed_them(landing: Landing) -> None:
    for number in range(4):
        land(landing, number, [number], [number])
    passing = Passing(landing, 2, {})
    passing.committed({"00000": [3, None]})
    assert landing.landed() == [0, 1, 2, 3]
    passing.committed({"00001": [2, [0, 1]]})
    assert landing.landed() == [2, 3]
    assert landing.next_number() == 4
    passing.committed({"00000": [4, None], "00001": [4, None]})
    assert (landing.landed(), landing.next_number()) == ([], 4)
    passing.committed({"00000": [3, None], "00001": [3, None]})
    assert landing.passed() == 4


def test_offsets_that_need_deleted_batches_are_refused(landing: Landing) -> None:
    land(landing, 0, [0])
    land(landing, 1, [1])
    landing.delete_below(1)
    assert [one for one, _ in read(reader_of(landing, offset=[1, None]))] == [1]
    for offset in (None, [0, None], [0, [0, 1]]):
        with pytest.raises(SourceDataError, match=r"batches below 1 .* were deleted"):
            reader_of(landing, offset=offset)
