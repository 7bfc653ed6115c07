"""The sink and the source of Iceberg tables, with a catalog in SQLite; DuckDB reads what is written."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform

import minirt as rt
from minirt.data.batch import Rows
from minirt.io import Sink, SinkContext, SinkIdentity, Staging
from minirt.io.base import Committable, CommitterContext, SinkCommitter
from minirt.io.ledger import LedgerConnection
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract, SourceContract
from minirt.testing.sinks import SinkTrial, check_sink
from minirt.testing.sinks.lives import draw_life
from minirt.testing.sinks.world import play
from minirt_connectors.iceberg import IcebergSink, IcebergSource
from tests.coordinators import check_two_coordinators
from tests.jobs import named_rows
from tests.ledgers import Bent
from tests.tables.duck import iceberg_rows
from tests.tables.reading import ids, reader

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Place:
    """A catalog in a folder, and tables in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.catalog = SqlCatalog("minirt", **self.properties)
        self.catalog.create_namespace_if_not_exists("db")

    def create(self, name: str = "db.t", schema: pa.Schema = SCHEMA) -> str:
        self.catalog.create_table(name, schema)
        return name

    def sink(self, name: str = "db.t", **options: Any) -> IcebergSink:
        return IcebergSink(self.properties, name, **options)

    def source(self, name: str = "db.t", **options: Any) -> IcebergSource:
        return IcebergSource(self.properties, name, **options)

    def rows(self, query: str = "SELECT id FROM t", name: str = "db.t") -> list[tuple[Any, ...]]:
        return iceberg_rows(self.catalog.load_table(name).metadata_location, query)

    def append(self, *ids: int, name: str = "db.t") -> None:
        rows = pa.table({"id": list(ids), "name": [f"row {id}" for id in ids]}, SCHEMA)
        self.catalog.load_table(name).append(rows)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "lake")


# The sink.


class TestSinkContract(SinkContract):
    def never_taken(self) -> list[Any]:
        return [{"id": "seven", "name": "x"}, {"id": 2**63, "name": "x"}, {"id": 1, "name": 1.5}]

    @pytest.fixture(autouse=True)
    def _place(self, place: Place, tmp_path: Path) -> None:
        self.place, self.table = place, place.create()
        self.store = ObjectStore(str(tmp_path / "staged"))

    def new_sink(self) -> Sink:
        sink = self.place.sink()
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        if self.place.catalog.load_table("db.t").current_snapshot() is None:
            return []
        rows = self.place.rows("SELECT id, name FROM t ORDER BY id")
        return [{"id": id, "name": name} for id, name in rows]

    def pending(self) -> list[str]:
        return list(self.store.list())

    def staging(self) -> Staging:
        return self.store


class IcebergTrial(SinkTrial):
    """Each life has a table of its own."""

    def __init__(self, place: Place, kind: type[IcebergSink] = IcebergSink) -> None:
        self.place, self.kind = place, kind
        self.numbers = itertools.count()

    def begin(self) -> None:
        self.table = self.place.create(f"db.t{next(self.numbers)}")

    def sink(self) -> Sink:
        return self.kind(self.place.properties, self.table)

    def visible(self) -> Sequence[int]:
        if self.place.catalog.load_table(self.table).current_snapshot() is None:
            return []
        return [id for (id,) in self.place.rows(name=self.table)]


def test_the_kit_finds_nothing(place: Place) -> None:
    check_sink(IcebergTrial(place), runs=3)


def test_of_two_coordinators_one_ends_with_an_error(place: Place, tmp_path: Path) -> None:
    check_two_coordinators(IcebergTrial(place), ObjectStore(str(tmp_path / "staged")))


class Forgetful(IcebergSink):
    """Does not find what the table says of checkpoints."""

    def connect(self) -> LedgerConnection:
        return Bent(super().connect(), lambda entry: replace(entry, checkpoint_id=0))


def test_the_kit_finds_a_mistake(place: Place) -> None:
    trial = IcebergTrial(place, Forgetful)
    assert any(play(draw_life(seed), trial).wrong for seed in range(20))


def committer(sink: Sink, generation: int, staging: Staging) -> SinkCommitter:
    identity = SinkIdentity("job", "out")
    return sink.open_committer(CommitterContext(identity, "out", generation, staging))


def prepared(sink: Sink, checkpoint_id: int, staging: Staging, *records: Any) -> list[Committable]:
    writer = sink.open_writer(SinkContext(SinkIdentity("job", "out"), "out", 0, 1, 1, staging))
    writer.write(Rows(list(records)))
    ready = writer.prepare(checkpoint_id)
    assert ready.finish is not None
    ready.finish()
    return [Committable(checkpoint_id, handle) for handle in ready.handles]


def test_a_commit_that_another_came_ahead_of_is_not_repeated_by_the_library(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two coordinators have read the ledger; both commit the same files."""
    place.create()
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = place.sink()
    waiting = prepared(sink, 1, staging, {"id": 1, "name": "a"})
    first = committer(sink, 1, staging)
    came: list[SinkCommitter] = []

    class Held(ObjectStore):
        def read(self, path: str) -> bytes:
            if not came:
                came.append(first)
                first.commit([Committable(1, dict(waiting[0].handle))])
                staging.write(path, kept)
            return kept

    piece = f"{waiting[0].handle['owner']}/{waiting[0].handle['piece']}"
    kept = staging.read(piece)
    second = committer(sink, 1, Held(str(tmp_path / "staged")))
    with pytest.raises(rt.StorageError, match="CommitFailed"):
        second.commit(waiting)
    second.commit(waiting)
    assert place.rows() == [(1,)]
    assert place.catalog.load_table("db.t").properties.get("commit.retry.num-retries") is None


def test_the_ledger_is_found_in_the_snapshots_if_somebody_has_removed_the_property(
    place: Place, tmp_path: Path
) -> None:
    place.create()
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = place.sink()
    waiting = prepared(sink, 1, staging, {"id": 1, "name": "a"})
    kept = {path: staging.read(path) for path in staging.list()}
    committer(sink, 1, staging).commit(waiting)
    table = place.catalog.load_table("db.t")
    ours = [key for key in table.properties if key.startswith("minirt.")]
    table.transaction().remove_properties(*ours).commit_transaction()
    place.append(7)
    for path, piece in kept.items():
        staging.write(path, piece)
    committer(sink, 1, staging).commit(waiting)
    assert sorted(place.rows()) == [(1,), (7,)]


def test_partitions_by_transforms(place: Place, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())])
    place.create(schema=schema)
    with place.catalog.load_table("db.t").update_spec() as spec:
        spec.add_field("day", MonthTransform())
        spec.add_field("id", BucketTransform(4))
        spec.add_field("name", IdentityTransform())
    rows = [
        {"id": n, "name": name, "day": dt.date(2024, 1 + n % 3, 5)}
        for n, name in enumerate(["a", None, "b c/d=%", "ü", "a", "a"])
    ]
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = place.sink()
    sink.validate()
    waiting = prepared(sink, 1, staging, *rows)
    committer(sink, 1, staging).commit(waiting)
    found = place.rows("SELECT id, name, day FROM t ORDER BY id")
    assert found == [tuple(row.values()) for row in rows]
    one_month = "SELECT count(*) FROM t WHERE day < '2024-02-01' AND name = 'a'"
    assert place.rows(one_month) == [(1,)]


@pytest.mark.processes
def test_a_job_writes_each_record_once(place: Place, tmp_path: Path) -> None:
    place.create()
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.2)
    named_rows(place.sink(), 2000, job="to-iceberg").execute(checkpointing=checkpointing)
    assert place.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(2000, 2000)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [({"write.format.default": "orc"}, "orc"), ({"minirt.x": "y"}, None)],
)
def test_a_table_that_asks_for_more_is_refused(
    place: Place, properties: dict[str, str], message: str | None
) -> None:
    place.create()
    place.catalog.load_table("db.t").transaction().set_properties(properties).commit_transaction()
    if message is None:
        place.sink().validate()
        return
    with pytest.raises(rt.ConfigurationError, match=message):
        place.sink().validate()


def test_what_is_missing_is_refused_and_no_secret_is_told(place: Place) -> None:
    for end in (place.sink("db.nowhere"), place.source("no.where")):
        with pytest.raises(rt.ConfigurationError, match="no such table"):
            end.validate()
    with pytest.raises(rt.ConfigurationError, match=r"namespace\.table"):
        place.sink("t")
    wrong = {"type": "sql", "uri": "sqlite:////nowhere/secret-word.db", "warehouse": "file:///x"}
    with pytest.raises(rt.ConfigurationError) as caught:
        IcebergSink(wrong, "db.t").validate()
    assert "secret-word.db" not in str(caught.value)


def test_columns_that_change_while_the_job_runs_end_it(place: Place, tmp_path: Path) -> None:
    place.create()
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = place.sink()
    commits = committer(sink, 1, staging)
    waiting = prepared(sink, 1, staging, {"id": 1, "name": "a"})
    with place.catalog.load_table("db.t").update_schema() as change:
        from pyiceberg.types import IntegerType

        change.add_column("more", IntegerType())
    with pytest.raises(rt.SinkDataError, match="columns of the table were changed"):
        commits.commit(waiting)


# The source.


class TestSourceContract(SourceContract):
    @pytest.fixture
    def source(self, place: Place) -> rt.Source:
        place.create()
        for first in range(3):
            place.append(*range(first * 20_000, (first + 1) * 20_000))
        return place.source(bounded=True, splits=2)

    @pytest.fixture
    def expected(self, place: Place, source: rt.Source) -> list[Any]:
        table = place.catalog.load_table("db.t")
        paths = sorted(task.file.file_path for task in table.scan().plan_files())
        files = [pa.parquet.read_table(path.removeprefix("file://")) for path in paths]
        return [row for file in files[0::2] + files[1::2] for row in file.to_pylist()]


def test_later_snapshots_are_read_as_they_come_and_from_any_offset(place: Place) -> None:
    place.create()
    source = place.source(poll=0)
    reading = reader(source)
    offsets = [reading.offset]
    assert ids(reading) == []
    for id in (1, 2):
        place.append(id)
        batch = reading.read()
        assert isinstance(batch, pa.RecordBatch)
        assert batch.column("id").to_pylist() == [id]
        offsets.append(reading.offset)
    assert ids(reading) == []
    assert ids(reader(source, offsets[0])) == [1, 2]
    assert ids(reader(source, offsets[1])) == [2]
    first = place.catalog.load_table("db.t").snapshots()[0].snapshot_id
    assert ids(reader(place.source(snapshot=first, bounded=True))) == [1]
    assert ids(reader(place.source(snapshot=first, existing=False, poll=0))) == [2]


def test_a_snapshot_that_takes_rows_away_fails_or_is_passed_over(place: Place) -> None:
    place.create()
    place.append(1, 2)
    failing, passing = (reader(place.source(poll=0, on_change=one)) for one in ("fail", "skip"))
    assert ids(failing) == ids(passing) == [1, 2]
    place.catalog.load_table("db.t").delete("id = 1")
    place.append(3)
    with pytest.raises(rt.SourceDataError, match="changes or deletes"):
        ids(failing)
    assert ids(passing) == [3]


def test_snapshots_that_were_expired_are_an_error_and_never_passed_over(place: Place) -> None:
    place.create()
    place.append(1)
    reading = reader(place.source(poll=0))
    assert ids(reading) == [1]
    place.append(2)
    place.append(3)
    table = place.catalog.load_table("db.t")
    gone = [snapshot.snapshot_id for snapshot in table.snapshots()[:2]]
    for one in gone:
        with suppress(AttributeError):
            table.maintenance.expire_snapshots().by_id(one).commit()
    with pytest.raises(rt.SourceDataError, match="expired"):
        ids(reading)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": 7}, "no snapshot 7"),
        ({"snapshot": dt.datetime(2024, 1, 1)}, "time zone"),
        ({"bounded": True, "existing": False}, "read nothing"),
        ({"columns": ["nmae"]}, "did you mean 'name'"),
        ({"on_change": "ignore"}, "fail or skip"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    place: Place, options: dict[str, Any], message: str
) -> None:
    place.create()
    with pytest.raises(rt.ConfigurationError, match=message):
        place.source(**options).validate()
