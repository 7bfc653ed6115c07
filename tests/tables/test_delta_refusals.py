"""What a Delta table can never take is refused when the job is built, or when a record is written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Columns, Rows
from minirt.io import Handle, Sink, SinkContext, SinkIdentity
from minirt.io.base import Committable, CommitterContext
from minirt.storage.store import ObjectStore
from minirt_connectors.delta import DeltaSink

OWNER = SinkIdentity("job", "out")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])

FLAT = [
    *(pa.bool_(), pa.null(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(4)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("us")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
    *(pa.decimal128(38, 2), pa.decimal128(5, -2), pa.decimal256(40, 2), pa.decimal32(5, 2)),
    *(pa.dictionary(pa.int32(), pa.string()), pa.month_day_nano_interval()),
]  # fmt: skip


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.struct([("a", kind)])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


def staging(folder: Path) -> ObjectStore:
    return ObjectStore(str(folder / "staged"))


def prepared(sink: Sink, folder: Path, *records: Any, checkpoint: int = 1) -> list[Handle]:
    writer = sink.open_writer(SinkContext(OWNER, "out", 0, 1, 1, staging(folder)))
    for record in records:
        writer.write(Columns(record) if isinstance(record, pa.RecordBatch) else Rows([record]))
    ready = writer.prepare(checkpoint)
    if ready.finish is not None:
        ready.finish()
    return ready.handles


def commit(sink: Sink, folder: Path, handles: list[Handle], checkpoint: int = 1) -> None:
    committer = sink.open_committer(CommitterContext(OWNER, "out", 1, staging(folder)))
    committer.commit([Committable(checkpoint, handle) for handle in handles])
    committer.close()


def refusal(sink: Sink) -> str | None:
    try:
        sink.validate()
    except rt.ConfigurationError as error:
        return str(error)
    return None


@given(st.recursive(st.sampled_from(FLAT), nested, max_leaves=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_type_that_a_table_cannot_have_is_refused_with_its_column_before_there_is_a_table(
    kind: pa.DataType, nullable: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = str(Path(folder, "table"))
        schema = pa.schema(
            [("id", pa.int64()), pa.field("value", kind, nullable or kind == pa.null())]
        )
        sink = DeltaSink(table, schema=schema)
        if refused := refusal(sink):
            assert "'value'" in refused
            assert str(kind) in refused
            assert "\n" not in refused
            assert not Path(table).exists()
            return
        rows = pa.RecordBatch.from_pylist([{"id": 1, "value": None}], pa.schema(
            [field.with_nullable(True) for field in schema]
        ))  # fmt: skip
        if not schema.field("value").nullable:
            rows = rows.slice(0, 0)
        commit(sink, Path(folder), prepared(sink, Path(folder), rows))
        made = pa.schema(deltalake.DeltaTable(table).schema().to_arrow())
        assert made.field("value").type == kind
        assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == rows.num_rows


def test_a_table_that_is_partitioned_by_all_of_its_columns_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    with pytest.raises(rt.ConfigurationError, match="partitioned by all of its columns"):
        DeltaSink(uri, schema=SCHEMA, partition_by=["id", "name"]).validate()
    assert not Path(uri).exists()
    deltalake.DeltaTable.create(uri, SCHEMA, partition_by=["name", "id"])
    with pytest.raises(rt.ConfigurationError, match="partitioned by all of its columns"):
        DeltaSink(uri).validate()


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"PAR1")])
def test_a_commit_names_no_file_that_is_gone_or_was_changed(
    tmp_path: Path, count: int, harm: Callable[[Path], object]
) -> None:
    """However young the file is: the table stays readable."""
    sink = DeltaSink(str(tmp_path / "table"), schema=SCHEMA, file_size="1B")
    sink.validate()
    commit(sink, tmp_path, prepared(sink, tmp_path, {"id": 0, "name": "kept"}))
    known = {*(tmp_path / "table").glob("part-*")}
    waiting = [{"id": id, "name": "x"} for id in range(count)]
    handles = prepared(sink, tmp_path, *waiting, checkpoint=2)
    [*_, lost] = {*(tmp_path / "table").glob("part-*")} - known
    harm(lost)
    with pytest.raises(rt.JobFailedError, match=lost.name):
        commit(sink, tmp_path, handles, checkpoint=2)
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 1


CHANGES = {
    "another type": (pa.schema([("id", pa.int64()), ("name", pa.int32())]), None),
    "a column less": (pa.schema([("id", pa.int64())]), None),
    "other partitions": (SCHEMA, "name"),
}


@pytest.mark.parametrize("merges", [False, True], ids=["append", "merge"])
@pytest.mark.parametrize("change", CHANGES)
def test_output_that_waits_is_not_added_to_a_table_that_was_made_anew_with_other_columns(
    tmp_path: Path, change: str, merges: bool
) -> None:
    options: dict[str, Any] = {"mode": "merge", "key": "id"} if merges else {}
    uri = str(tmp_path / "table")
    sink = DeltaSink(uri, schema=SCHEMA, **options)
    sink.validate()
    handles = prepared(sink, tmp_path, {"id": 1, "name": "x"})
    schema, partition_by = CHANGES[change]
    if merges and partition_by:
        pytest.skip("rows that are merged are cut into partitions at the commit")
    deltalake.DeltaTable.create(uri, schema, partition_by=partition_by)
    started_again = DeltaSink(uri, **options)
    started_again.validate()
    with pytest.raises(rt.SinkDataError, match="was written for other columns"):
        commit(started_again, tmp_path, handles)


@pytest.mark.parametrize("merges", [False, True], ids=["append", "merge"])
def test_output_that_waits_fits_a_table_that_got_a_column(tmp_path: Path, merges: bool) -> None:
    options: dict[str, Any] = {"mode": "merge", "key": "id"} if merges else {}
    uri = str(tmp_path / "table")
    sink = DeltaSink(uri, schema=SCHEMA, **options)
    sink.validate()
    handles = prepared(sink, tmp_path, {"id": 1, "name": "x"})
    commit(sink, tmp_path, [])
    deltalake.DeltaTable(uri).alter.add_columns([deltalake.Field("more", "integer")])
    started_again = DeltaSink(uri, **options)
    started_again.validate()
    commit(started_again, tmp_path, handles)
    rows = deltalake.DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert rows == [{"id": 1, "name": "x", "more": None}]


def test_pieces_that_tell_no_columns_are_committed_as_before(tmp_path: Path) -> None:
    """Those of checkpoints that an earlier minirt has taken."""
    import json

    sink = DeltaSink(str(tmp_path / "table"), schema=SCHEMA)
    sink.validate()
    handles = prepared(sink, tmp_path, {"id": 1, "name": "x"})
    [path] = staging(tmp_path).list()
    told = json.loads(staging(tmp_path).read(path))
    staging(tmp_path).write(path, json.dumps(told["files"]).encode())
    commit(sink, tmp_path, handles)
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize("when", ["built", "running"])
def test_rows_of_a_table_that_only_takes_appends_are_not_merged(tmp_path: Path, when: str) -> None:
    uri = str(tmp_path / "table")
    only = {"delta.appendOnly": "true"}
    deltalake.DeltaTable.create(uri, SCHEMA, configuration=only if when == "built" else None)
    DeltaSink(uri).validate()
    sink = DeltaSink(uri, mode="merge", key="id")
    if when == "running":
        sink.validate()
        handles = prepared(sink, tmp_path, {"id": 1, "name": "x"})
        deltalake.DeltaTable(uri).alter.set_table_properties(only)
    with pytest.raises(rt.ConfigurationError, match=r"delta\.appendOnly"):
        sink.validate() if when == "built" else commit(sink, tmp_path, handles)
