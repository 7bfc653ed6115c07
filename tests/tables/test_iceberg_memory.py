"""What a checkpoint remembers of an Iceberg table is compared with the table, in both directions."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")

import minirt as rt
from minirt.io import Sink, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import BEFORE, SinkMemoryContract, SourceMemoryContract
from minirt_connectors.iceberg import IcebergSink, IcebergSource
from tests.tables.test_iceberg import SCHEMA, Place, committer, prepared


class IcebergMemory(SourceMemoryContract):
    """Each record is a snapshot."""

    table = "db.t"

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = Place(tmp_path / "place")

    def write(self, table: str, ids: Sequence[int]) -> None:
        for id in ids:
            rows = pa.table({"id": [id], "name": [f"row {id}"]}, SCHEMA)
            self.place.catalog.load_table(table).append(rows)

    def first(self) -> rt.Source:
        self.write(self.place.create(), range(BEFORE))
        return IcebergSource(self.place.properties, "db.t", poll=0)

    def second(self, accept: Sequence[str]) -> rt.Source:
        return IcebergSource(self.place.properties, self.table, poll=0, accept=accept)  # type: ignore[arg-type]

    def older(self, offset: Any) -> Any:
        return offset[:3]

    def records_of(self, count: int) -> int | None:
        return count


class TestAnotherTable(IcebergMemory):
    while_running = False
    names = ("db.t", "db.other", "table uuid")
    table = "db.other"

    def change(self, count: int) -> None:
        self.write(self.place.create("db.other"), range(100, 100 + count))


class TestATableMadeAnew(IcebergMemory):
    names = ("db.t", "table uuid")

    def change(self, count: int) -> None:
        self.place.catalog.drop_table("db.t")
        self.write(self.place.create(), range(100, 100 + count))


class TestSinkMemory(SinkMemoryContract):
    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path) -> None:
        self.place, self.kept = Place(tmp_path / "place"), tmp_path / "kept.db"
        self.place.create()
        self.database = tmp_path / "place" / "catalog.db"
        self.store = ObjectStore(str(tmp_path / "staging"), None)

    def new_sink(self, accept: Sequence[str]) -> Sink:
        return IcebergSink(self.place.properties, "db.t", accept=accept)  # type: ignore[arg-type]

    def staging(self) -> Staging:
        return self.store

    def keep(self) -> None:
        shutil.copy(self.database, self.kept)

    def go_back(self) -> None:
        shutil.copy(self.kept, self.database)

    def visible(self) -> list[Any]:
        rows = self.place.catalog.load_table("db.t").scan().to_arrow()
        return sorted(rows["id"].to_pylist())


@pytest.mark.parametrize("nested", [False, True], ids=["a column", "a field of a struct"])
def test_a_column_that_was_dropped_and_added_again_is_refused(tmp_path: Path, nested: bool) -> None:
    place = Place(tmp_path / "place")
    kind: pa.DataType = pa.struct([("x", pa.int64())]) if nested else pa.int64()
    place.create(schema=pa.schema([("id", pa.int64()), ("a", kind)]))
    store = ObjectStore(str(tmp_path / "staging"), None)
    sink = place.sink()
    value = {"x": 5} if nested else 5
    waiting = prepared(sink, 1, store, {"id": 1, "a": value})
    name: Any = ("a", "x") if nested else "a"
    from pyiceberg.types import LongType

    table = place.catalog.load_table("db.t")
    if nested:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.add_column(("a", "y"), LongType())
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)
    with table.update_schema() as update:
        update.add_column(name, LongType())
    if nested:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(("a", "y"))
    place.sink().validate()
    with pytest.raises(
        rt.SinkDataError, match=r"column 'a(\.x)?' of the id \d+, which is another one"
    ):
        committer(place.sink(), 2, store).commit_restored(waiting)
    assert place.catalog.load_table("db.t").scan().to_arrow().num_rows == 0
