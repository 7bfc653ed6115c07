"""Parquet as a source."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import ParquetSource, Source, files, parquet
from minirt.testing.contracts import SourceContract, read_all

ROWS = [
    {"id": i, "kind": "ab"[i % 2], "time": dt.datetime(2020, 1, 1, microsecond=i)}
    for i in range(200)
]


class TestParquetSource(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
        monkeypatch.setattr(parquet, "BATCH_ROWS", 7)
        monkeypatch.setattr(files, "MIN_SPLIT_BYTES", 500)
        first = pa.Table.from_pylist(ROWS[:150])
        first = first.set_column(1, "kind", first["kind"].dictionary_encode())
        pq.write_table(first, tmp_path / "a.parquet", row_group_size=20)
        second = pa.Table.from_pylist(ROWS[150:]).select(["time", "kind", "id"])
        second = second.set_column(2, "id", second["id"].cast(pa.int32()))
        pq.write_table(second, tmp_path / "b.parquet")
        pq.write_table(first.slice(0, 0), tmp_path / "none.parquet")
        (tmp_path / "_SUCCESS").touch()
        return ParquetSource(tmp_path)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"origin": ["x", "y"], "delay": [1, 2]}), tmp_path / "f.parquet")
    return tmp_path / "f.parquet"


def test_columns_limits_and_orders_what_is_read(path: Path) -> None:
    source = ParquetSource(path, columns=["delay"])
    assert source.schema().names == ["delay"]
    assert read_all(source, source.plan_splits(1)[0]) == [{"delay": 1}, {"delay": 2}]


def test_an_unknown_column_is_refused_with_the_nearest_known(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no column 'orign'; did you mean 'origin'"):
        ParquetSource(path, columns=["orign"]).validate()


def test_row_groups_are_read_together_up_to_the_size_of_a_split(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "f.parquet", row_group_size=10)
    assert len(ParquetSource(tmp_path).plan_splits(4)) == 1


def test_a_truncated_file_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(SourceDataError, match=r"cannot read .*f\.parquet as Parquet"):
        ParquetSource(path).validate()


def test_a_damaged_page_is_found_when_it_is_read(path: Path) -> None:
    source = ParquetSource(path)
    (split,) = source.plan_splits(1)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)
    with pytest.raises(SourceDataError, match=r"f\.parquet"):
        read_all(source, split)


def test_files_that_do_not_fit_the_first_are_named(path: Path) -> None:
    other = path.parent / "g.parquet"
    source = ParquetSource(path.parent)
    pq.write_table(pa.table({"origin": ["x"]}), other)
    with pytest.raises(SourceDataError, match=r"g\.parquet has no column delay"):
        read_all(source, source.plan_splits(1)[1])
    pq.write_table(pa.table({"origin": ["x"], "delay": ["much"]}), other)
    with pytest.raises(SourceDataError, match=r"g\.parquet differs .*'delay'.*much"):
        read_all(source, source.plan_splits(1)[1])


def test_files_elsewhere_are_read_through_fsspec(path: Path) -> None:
    fsspec.filesystem("memory").pipe("/elsewhere/f.parquet", path.read_bytes())
    source = ParquetSource("memory://elsewhere")
    assert len(read_all(source, source.plan_splits(1)[0])) == 2


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        ParquetSource(tmp_path / "nowhere").validate()
