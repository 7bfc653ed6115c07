"""Times in INT96 come as they are stored, whatever their year and their last digit; or they are refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import SourceDataError
from minirt.io import ParquetSource, parquet
from minirt.testing.contracts import read_all

TIMES = st.none() | st.datetimes() | st.sampled_from([dt.datetime(9999, 12, 31), dt.datetime.min])
EPOCH = dt.datetime(1970, 1, 1)
NANOSECONDS = st.none() | st.integers(-(2**62), 2**62) | st.integers(-3, 3)


def columns(times: pa.Array) -> pa.Table:
    """The times in a column, in lists and in structs."""
    lists = pa.ListArray.from_arrays(pa.array(range(len(times) + 1), pa.int32()), times)
    return pa.table(
        {
            "id": range(len(times)),
            "t": times,
            "all": lists,
            "in": pa.StructArray.from_arrays([times], ["t"]),
        }
    )


def read(path: Path, **options: Any) -> pa.Table:
    source = ParquetSource(path, **options)
    batches = []
    for split in source.plan_splits(1):
        reader = source.open_split(split, None)
        while (batch := reader.read()) is not None:
            batches.append(batch)
        reader.close()
    return pa.Table.from_batches(batches, source.schema())


def store(path: Path, table: pa.Table, rows: int) -> Path:
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=rows)
    return path


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 2)


@given(st.lists(TIMES, min_size=1, max_size=7), st.integers(1, 4))
def test_times_of_all_years(
    tmp_path_factory: pytest.TempPathFactory, times: list[Any], rows: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "years.parquet"
    table = columns(pa.array(times, pa.timestamp("us")))
    store(path, table, rows)
    assert read(path).to_pylist() == table.to_pylist()
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    expected = [time and time.replace(tzinfo=dt.UTC) for time in times]
    assert read(path, schema=schema)["t"].to_pylist() == expected


@given(st.lists(NANOSECONDS, min_size=1, max_size=7), st.integers(1, 4))
def test_nanoseconds_are_kept_or_refused(
    tmp_path_factory: pytest.TempPathFactory, counts: list[Any], rows: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "nanoseconds.parquet"
    table = columns(pa.array(counts, pa.timestamp("ns")))
    store(path, table, rows)
    assert read(path, schema=table.schema).equals(table)
    if all(count is None or count % 1000 == 0 for count in counts):
        expected = [
            None if count is None else EPOCH + dt.timedelta(microseconds=count // 1000)
            for count in counts
        ]
        assert read(path)["t"].to_pylist() == expected
    else:
        with pytest.raises(
            SourceDataError, match=r"nanoseconds\.parquet.*'(t|all|in)'.*INT96 with nanosec"
        ):
            read(path)


def test_nanoseconds_do_not_reach_all_years(tmp_path: Path) -> None:
    path = store(tmp_path / "a.parquet", columns(pa.array([dt.datetime(9999, 1, 1)])), 1)
    source = ParquetSource(path, schema=pa.schema([("t", pa.timestamp("ns"))]))
    [split] = source.plan_splits(1)
    with pytest.raises(SourceDataError, match=r"a\.parquet"):
        read_all(source, split)
