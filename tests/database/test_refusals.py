"""What a database or its driver can never take is refused when the job is built."""

from __future__ import annotations

import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Columns
from minirt.io import Handle, Sink, SinkContext, SinkIdentity
from minirt.io.base import Committable, CommitterContext
from minirt.storage.store import ObjectStore
from minirt_connectors.database import DatabaseSink
from minirt_connectors.database.types import sample

OWNER = SinkIdentity("job", "out")

TYPES = [
    *(pa.bool_(), pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32()),
    *(pa.float64(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("us"), pa.null()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("s", "Asia/Tokyo")),
    *(pa.decimal128(38, 2), pa.decimal256(50, 3), pa.list_(pa.int64()), pa.list_(pa.int64(), 2)),
    *(pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())),
    pa.dictionary(pa.int32(), pa.string()),
]


def write_and_commit(sink: Sink, folder: Path, batch: pa.RecordBatch) -> None:
    staging = ObjectStore(str(folder / "staged"))
    writer = sink.open_writer(SinkContext(OWNER, "out", 0, 1, 1, staging))
    writer.write(Columns(batch))
    ready = writer.prepare(1)
    if ready.finish is not None:
        ready.finish()
    committer = sink.open_committer(CommitterContext(OWNER, "out", 1, staging))
    handles: list[Handle] = ready.handles
    committer.commit([Committable(1, handle) for handle in handles])
    committer.close()


@pytest.mark.filterwarnings("ignore:The default .* adapter is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_without_a_form_in_the_driver_is_refused_with_its_column(
    tmp_path: Path, kind: pa.DataType
) -> None:
    file = tmp_path / "database"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE results (id bigint, value)")
    schema = pa.schema([("id", pa.int64()), ("value", kind)])
    sink = DatabaseSink("sqlite3", {"database": str(file)}, "results", schema)
    value = sample(kind)
    assert (value is None) == pa.types.is_null(kind)
    try:
        sink.validate()
        refused = None
    except rt.ConfigurationError as error:
        refused = str(error)
    if refused is not None:
        assert "column 'value'" in refused
        assert str(kind) in refused
        assert type(value).__name__ in refused
        with sqlite3.connect(file) as database, pytest.raises(sqlite3.Error):
            database.execute("INSERT INTO results VALUES (1, ?)", (value,))
        return
    plain = pa.array([None] if pa.types.is_fixed_size_list(kind) else [value], kind)
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int64()), plain], schema=schema)
    write_and_commit(sink, tmp_path, batch)
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT count(*) FROM results").fetchall() == [(1,)]


class _Committing:
    """A connection that commits by itself, and says so when it is rolled back, as that of DuckDB does."""

    def __init__(self, database: str, commit_raises: bool) -> None:
        self._inner = sqlite3.connect(database, isolation_level=None)
        self._commit_raises = commit_raises

    def cursor(self) -> Any:
        return self._inner.cursor()

    def commit(self) -> None:
        if self._commit_raises:
            raise sqlite3.OperationalError("cannot commit - no transaction is active")

    def rollback(self) -> None:
        raise sqlite3.OperationalError("cannot rollback - no transaction is active")

    def close(self) -> None:
        self._inner.close()


class _Broken(_Committing):
    """A connection that is gone once something was written."""

    def cursor(self) -> Any:
        if self._inner.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 1:
            written = self._inner.execute("SELECT count(*) FROM minirt_commits").fetchone()[0]
            if written:
                raise sqlite3.OperationalError("the connection is gone")
        return super().cursor()


@pytest.fixture
def odd_driver(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("odd_driver")
    vars(module).update({name: value for name, value in vars(sqlite3).items() if name[0] != "_"})
    monkeypatch.setitem(sys.modules, "odd_driver", module)
    return module


def connected(tmp_path: Path) -> None:
    file = str(tmp_path / "database")
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE results (id bigint)")
    schema = pa.schema([("id", pa.int64())])
    sink = DatabaseSink("odd_driver", {"database": file}, "results", schema)
    sink.validate()
    sink.connect().close()


@pytest.mark.parametrize("commit_raises", [False, True])
def test_a_connection_that_commits_by_itself_is_refused_whatever_its_rollback_says(
    tmp_path: Path, odd_driver: Any, commit_raises: bool
) -> None:
    odd_driver.connect = lambda database: _Committing(database, commit_raises)
    with pytest.raises(rt.ConfigurationError, match="commits each statement by itself"):
        connected(tmp_path)
    with sqlite3.connect(tmp_path / "database") as database:
        assert database.execute("SELECT count(*) FROM minirt_commits").fetchall() == [(0,)]


def test_a_connection_that_breaks_is_an_outage(tmp_path: Path, odd_driver: Any) -> None:
    odd_driver.connect = lambda database: _Broken(database, False)
    with pytest.raises(rt.MinirtError, match="the connection is gone") as broken:
        connected(tmp_path)
    assert not isinstance(broken.value, rt.ConfigurationError)
