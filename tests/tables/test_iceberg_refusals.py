"""What an Iceberg table can never take is refused when the job is built, or when a record is written."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

import minirt as rt
from minirt.data.batch import Rows
from minirt.io import Handle, Sink, SinkContext, SinkIdentity
from minirt.io.base import Committable, CommitterContext
from minirt.storage.store import ObjectStore
from minirt_connectors.iceberg import IcebergSink, IcebergSource

OWNER = SinkIdentity("job", "out")
_NUMBERS = itertools.count()


class Place:
    """A catalog in a folder, by its name."""

    def __init__(self, folder: Path, name: str = "minirt") -> None:
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.staging = ObjectStore(str(folder / "staged"))
        self.catalog = SqlCatalog(name, **self.properties)
        self.catalog.create_namespace_if_not_exists("db")

    def create(self, *fields: NestedField, by: PartitionSpec | None = None) -> str:
        name = f"db.t{next(_NUMBERS)}"
        self.catalog.create_table(name, Schema(*fields), partition_spec=by or PartitionSpec())
        return name

    def prepared(self, sink: Sink, *records: Any, checkpoint: int = 1) -> list[Handle]:
        writer = sink.open_writer(SinkContext(OWNER, "out", 0, 1, 1, self.staging))
        if records:
            writer.write(Rows(list(records)))
        ready = writer.prepare(checkpoint)
        if ready.finish is not None:
            ready.finish()
        return ready.handles

    def commit(self, sink: Sink, handles: list[Handle], checkpoint: int = 1) -> None:
        committer = sink.open_committer(CommitterContext(OWNER, "out", 1, self.staging))
        committer.commit([Committable(checkpoint, handle) for handle in handles])
        committer.close()

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return rows


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("lake"))


TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)).map(
    lambda at: at.replace(fold=0)
)
VALUES: list[tuple[IcebergType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (LongType(), st.integers(-(2**63), 2**63 - 1)),
    (FloatType(), st.floats(width=32)),
    (DoubleType(), st.floats()),
    (StringType(), st.text(max_size=4)),
    (BinaryType(), st.binary(max_size=4)),
    (FixedType(3), st.binary(min_size=3, max_size=3)),
    (DateType(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))),
    (TimestampType(), TIMES),
    (TimestamptzType(), TIMES.map(lambda at: at.replace(tzinfo=dt.UTC))),
    (DecimalType(10, 2), st.decimals(-(10**7), 10**7, places=2)),
    (DecimalType(38, 6), st.decimals(-(10**31), 10**31, places=6)),
    (UUIDType(), st.uuids().map(lambda id: id.bytes)),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    *(IdentityTransform(), BucketTransform(3), TruncateTransform(3), VoidTransform()),
    *(YearTransform(), MonthTransform(), DayTransform(), HourTransform()),
]  # fmt: skip
KINDS = [
    (kind, transform, values)
    for kind, values in VALUES
    for transform in TRANSFORMS
    if transform.can_transform(kind)
]


def refusal(act: Callable[[], object]) -> str | None:
    """What a refusal says that is meant for the user."""
    try:
        act()
    except (rt.ConfigurationError, rt.SinkDataError) as error:
        return str(error)
    return None


def alike(value: Any) -> str:
    """Tells 0.0 from -0.0, and finds NaN equal to itself."""
    return repr(value)


@given(st.data(), st.sampled_from(KINDS), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_row_of_each_partition_is_written_once_or_refused_with_its_column(
    place: Place,
    data: st.DataObject,
    drawn: tuple[IcebergType, Transform[Any, Any], st.SearchStrategy[Any]],
    nested: bool,
) -> None:
    kind, transform, values = drawn
    inner = NestedField(2, "value", kind, required=False)
    field = NestedField(3, "outer", StructType(inner), required=False) if nested else inner
    spec = PartitionSpec(PartitionField(2, 1000, transform, "part"))
    try:
        name = place.create(NestedField(1, "id", LongType(), required=False), field, by=spec)
    except Exception:
        return  # A table that the library cannot make.
    sink = IcebergSink(place.properties, name)
    if refused := refusal(sink.validate):
        assert name in refused
        return
    some = data.draw(st.lists(values | st.none(), min_size=1, max_size=5))
    rows = [
        {"id": id, "outer": {"value": value}} if nested else {"id": id, "value": value}
        for id, value in enumerate(some)
    ]
    handles: list[Handle] = []
    if refused := refusal(lambda: handles.extend(place.prepared(sink, *rows))):
        assert "value" in refused
        assert any(isinstance(value, float) and math.isnan(value) for value in some), refused
        return
    place.commit(sink, handles)
    read = sorted(place.rows(name), key=lambda row: int(row["id"]))
    assert [row["id"] for row in read] == list(range(len(some)))
    back = [row["outer"]["value"] if nested else row["value"] for row in read]
    wanted = [alike(value) for value in some]
    if not isinstance(kind, FloatType | UUIDType | TimestamptzType):
        assert [alike(value) for value in back] == wanted


@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0, -0.0, None]])
def test_both_zeros_are_partitions_and_no_row_is_in_two(
    place: Place, zeros: list[float | None]
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    name = place.create(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "value", DoubleType(), required=False),
        by=spec,
    )
    sink = IcebergSink(place.properties, name)
    rows = [{"id": id, "value": value} for id, value in enumerate(zeros)]
    place.commit(sink, place.prepared(sink, *rows))
    back = sorted(place.rows(name), key=lambda row: int(row["id"]))
    assert repr(back) == repr(rows)


@pytest.mark.parametrize("count", [1, 40])
def test_a_commit_names_no_file_that_is_gone_or_was_changed(place: Place, count: int) -> None:
    name = place.create(NestedField(1, "id", LongType(), required=False))
    sink = IcebergSink(place.properties, name, file_size="1B")
    place.commit(sink, place.prepared(sink, {"id": -1}))
    folder = Path(place.catalog.load_table(name).location().removeprefix("file://"))
    known = {*folder.rglob("*.parquet")}
    handles = []
    for id in range(count):
        handles += place.prepared(sink, {"id": id}, checkpoint=2)
    [*_, lost] = {*folder.rglob("*.parquet")} - known
    lost.unlink()
    with pytest.raises(rt.JobFailedError, match=lost.name):
        place.commit(sink, handles, 2)
    assert place.rows(name) == [{"id": -1}]


def test_a_catalog_is_found_by_its_name(tmp_path: Path) -> None:
    lake = Place(tmp_path, "lake")
    name = lake.create(NestedField(1, "id", LongType(), required=False))
    with pytest.raises(rt.ConfigurationError, match=r"under the name 'minirt'.*catalog=\{'name'"):
        IcebergSink(lake.properties, name).validate()
    named = {"name": "lake", **lake.properties}
    IcebergSource(named, name).validate()
    sink = IcebergSink(named, name)
    lake.commit(sink, lake.prepared(sink, {"id": 1}))
    configured = {
        f"PYICEBERG_CATALOG__CONFIGURED__{key.upper()}": value
        for key, value in lake.properties.items()
    }
    lake.catalog = SqlCatalog("configured", **lake.properties)
    lake.catalog.create_namespace("db")
    there = lake.create(NestedField(1, "id", LongType(), required=False))
    program = (
        "from minirt_connectors.iceberg import IcebergSink; "
        f"IcebergSink('configured', {there!r}).validate()"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **configured}, check=True)
    for nothing in ("", {}, {"name": ""}, {"name": 7}, None):
        with pytest.raises(rt.ConfigurationError, match="catalog"):
            IcebergSink(nothing, name)  # type: ignore[arg-type]


def test_a_writer_takes_the_table_anew_now_and_then(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a catalog lends for access to files is good for some minutes only."""
    monkeypatch.setattr("minirt_connectors.iceberg.sink._LOADED_S", 0.0)
    name = place.create(NestedField(1, "id", LongType(), required=False))
    sink = IcebergSink(place.properties, name)
    sink.validate()
    loaded: list[str] = []
    load = type(sink._location).load

    def counted(location: Any, *given: Any) -> Any:
        loaded.append(location.name)
        return load(location, *given)

    monkeypatch.setattr(type(sink._location), "load", counted)
    writer = sink.open_writer(SinkContext(OWNER, "out", 0, 1, 1, place.staging))
    for checkpoint in (1, 2, 3):
        before = len(loaded)
        writer.write(Rows([{"id": checkpoint}]))
        ready = writer.prepare(checkpoint)
        assert ready.finish is not None
        ready.finish()
        assert len(loaded) > before


def test_decimals_of_partitions_survive_a_checkpoint(place: Place) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(50), "part"))
    name = place.create(NestedField(1, "price", DecimalType(10, 2), required=False), by=spec)
    sink = IcebergSink(place.properties, name)
    prices = [Decimal("-1.05"), Decimal("1.50"), None]
    place.commit(sink, place.prepared(sink, *({"price": price} for price in prices)))
    assert {row["price"] for row in place.rows(name)} == {*prices}
