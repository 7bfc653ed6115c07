"""What a checkpoint remembers of a Delta table is compared with the table, in both directions."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import minirt as rt
from minirt.io import Sink, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import BEFORE, SinkMemoryContract, SourceMemoryContract
from minirt_connectors.delta import DeltaSink, DeltaSource
from tests.tables.reading import ids, reader


def write(table: Path, ids: Sequence[int], **options: Any) -> None:
    """Each record is a version."""
    for id in ids:
        rows = pa.table({"id": [id], "name": [f"row {id}"]})
        deltalake.write_deltalake(str(table), rows, mode="append", **options)


class DeltaMemory(SourceMemoryContract):
    @pytest.fixture(autouse=True)
    def _tables(self, tmp_path: Path) -> None:
        self.table, self.other = tmp_path / "first", tmp_path / "second"

    def first(self) -> rt.Source:
        write(self.table, range(BEFORE))
        return DeltaSource(str(self.table), poll=0)

    def second(self, accept: Sequence[str]) -> rt.Source:
        return DeltaSource(str(self.table), poll=0, accept=accept)  # type: ignore[arg-type]

    def older(self, offset: Any) -> Any:
        return offset[:3]


class TestAnotherTable(DeltaMemory):
    while_running = False
    names = ("first", "second", "table id")

    def change(self, count: int) -> None:
        write(self.other, range(100, 100 + count))

    def second(self, accept: Sequence[str]) -> rt.Source:
        return DeltaSource(str(self.other), poll=0, accept=accept)  # type: ignore[arg-type]

    def records_of(self, count: int) -> int | None:
        return None if count < BEFORE else count - BEFORE

    @pytest.mark.parametrize("count", [BEFORE, BEFORE + 3])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        super().test_it_can_be_accepted_and_is_remembered_then(count)


class TestATableMadeAnew(DeltaMemory):
    names = ("first", "table id")

    def change(self, count: int) -> None:
        shutil.rmtree(self.table)
        write(self.table, range(100, 100 + count))

    @pytest.mark.parametrize("count", [BEFORE, BEFORE + 3])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        super().test_it_can_be_accepted_and_is_remembered_then(count)


class TestATableThatWentBack(DeltaMemory):
    """As from a backup: other versions come behind the third."""

    accept = "behind"
    names = ("version 5", "version")

    def first(self) -> rt.Source:
        write(self.table, range(2))
        shutil.copytree(self.table, self.other)
        write(self.table, range(2, BEFORE))
        return DeltaSource(str(self.table), poll=0)

    def change(self, count: int) -> None:
        shutil.rmtree(self.table)
        self.other.rename(self.table)
        write(self.table, range(100, 100 + count - 2))


class TestSinkMemory(SinkMemoryContract):
    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path) -> None:
        self.table, self.kept = tmp_path / "table", tmp_path / "kept"
        self.store = ObjectStore(str(tmp_path / "staging"), None)

    def new_sink(self, accept: Sequence[str]) -> Sink:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        return DeltaSink(str(self.table), schema=schema, accept=accept)  # type: ignore[arg-type]

    def staging(self) -> Staging:
        return self.store

    def keep(self) -> None:
        if not self.table.exists():
            schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
            deltalake.DeltaTable.create(str(self.table), schema)
        shutil.copytree(self.table, self.kept)

    def go_back(self) -> None:
        shutil.rmtree(self.table)
        self.kept.rename(self.table)

    def visible(self) -> list[Any]:
        rows = deltalake.DeltaTable(str(self.table)).to_pyarrow_table()
        return sorted(rows["id"].to_pylist())


def test_a_table_that_is_partitioned_otherwise_from_some_version_on(tmp_path: Path) -> None:
    table = tmp_path / "table"
    days = {"mode": "append", "partition_by": ["day"]}
    deltalake.write_deltalake(str(table), pa.table({"id": [1], "day": ["mon"]}), **days)  # type: ignore[call-overload]
    reading = reader(DeltaSource(str(table), poll=0, on_change="skip"))
    assert ids(reading) == [1]
    new = {"mode": "overwrite", "schema_mode": "overwrite", "partition_by": ["id"]}
    deltalake.write_deltalake(str(table), pa.table({"id": [2], "day": ["tue"]}), **new)  # type: ignore[call-overload]
    deltalake.write_deltalake(str(table), pa.table({"id": [3], "day": ["wed"]}), mode="append")
    batch = reading.read()
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"id": 3, "day": "wed"}]


def test_a_column_that_an_overwrite_takes_away_is_an_error(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(table, [1])
    reading = reader(DeltaSource(str(table), poll=0, on_change="skip"))
    assert ids(reading) == [1]
    rows = pa.table({"id": [2]})
    deltalake.write_deltalake(str(table), rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(rt.SourceDataError, match="no column name"):
        ids(reading)
