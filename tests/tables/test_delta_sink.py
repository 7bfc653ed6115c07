"""The sink of Delta tables, read back with DuckDB."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Columns, Rows
from minirt.io import Sink, SinkContext, SinkIdentity, Staging
from minirt.io.base import Committable, CommitterContext
from minirt.io.ledger import LedgerConnection
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract
from minirt.testing.sinks import SinkTrial, check_sink
from minirt.testing.sinks.lives import draw_life
from minirt.testing.sinks.world import play
from minirt_connectors.delta import DeltaSink, DeltaSource
from tests.coordinators import check_two_coordinators
from tests.jobs import named_rows
from tests.ledgers import Bent
from tests.tables.duck import delta_rows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class TestContract(SinkContract):
    def never_taken(self) -> list[Any]:
        return [{"id": "seven", "name": "x"}, {"id": 2**63, "name": "x"}, {"id": 1, "name": 1.5}]

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.table = str(tmp_path / "table")
        self.store = ObjectStore(str(tmp_path / "staged"))

    def new_sink(self) -> Sink:
        sink = DeltaSink(self.table, schema=SCHEMA)
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        if not deltalake.DeltaTable.is_deltatable(self.table):
            return []
        rows = delta_rows(self.table, "SELECT id, name FROM t ORDER BY id")
        return [{"id": id, "name": name} for id, name in rows]

    def pending(self) -> list[str]:
        return list(self.store.list())

    def staging(self) -> Staging:
        return self.store


class DeltaTrial(SinkTrial):
    """Each life has a table of its own."""

    def __init__(self, folder: Path, make: Callable[[str], Sink]) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._make = make

    def begin(self) -> None:
        self.table = str(self._folder / f"table-{next(self._numbers)}")

    def sink(self) -> Sink:
        return self._make(self.table)

    def visible(self) -> Sequence[int]:
        if not deltalake.DeltaTable.is_deltatable(self.table):
            return []
        return [id for (id,) in delta_rows(self.table)]


@pytest.fixture(
    params=[{}, {"partition_by": "name"}, {"mode": "merge", "key": "id"}],
    ids=["append", "partitioned", "merge"],
)
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaTrial:
    options: dict[str, Any] = request.param
    return DeltaTrial(tmp_path, lambda table: DeltaSink(table, schema=SCHEMA, **options))


def test_the_kit_finds_nothing(trial: DeltaTrial) -> None:
    check_sink(trial, runs=3)


def test_of_two_coordinators_one_ends_with_an_error(trial: DeltaTrial, tmp_path: Path) -> None:
    check_two_coordinators(trial, ObjectStore(str(tmp_path / "staged")))


class Forgetful(DeltaSink):
    """Does not find what the table says of it."""

    def connect(self) -> LedgerConnection:
        return Bent(super().connect(), lambda entry: replace(entry, checkpoint_id=0))


class Eager(DeltaSink):
    """Finds that more is committed than was."""

    def connect(self) -> LedgerConnection:
        return Bent(
            super().connect(), lambda entry: replace(entry, checkpoint_id=entry.checkpoint_id + 1)
        )


@pytest.mark.parametrize("wrong", [Forgetful, Eager])
def test_the_kit_finds_mistakes(tmp_path: Path, wrong: type[DeltaSink]) -> None:
    trial = DeltaTrial(tmp_path, lambda table: wrong(table, schema=SCHEMA))
    assert any(play(draw_life(seed), trial).wrong for seed in range(20))


# What a version of the table says.


def write_and_commit(sink: Sink, folder: Path, *records: Any) -> None:
    """One checkpoint of one writer."""
    staging = ObjectStore(str(folder / "staged"))
    sink.validate()
    identity = SinkIdentity("job", "out")
    writer = sink.open_writer(SinkContext(identity, "out", 0, 1, 1, staging))
    for record in records:
        writer.write(Columns(record) if isinstance(record, pa.RecordBatch) else Rows([record]))
    ready = writer.prepare(1)
    if ready.finish is not None:
        ready.finish()
    committer = sink.open_committer(CommitterContext(identity, "out", 1, staging))
    committer.commit([Committable(1, handle) for handle in ready.handles])
    committer.close()


def added(table: Path) -> list[dict[str, Any]]:
    """The add actions of the log, in their order."""
    lines = [
        json.loads(line)
        for version in sorted((table / "_delta_log").glob("*.json"))
        for line in version.read_text().splitlines()
    ]
    return [line["add"] for line in lines if "add" in line]


def test_statistics_hold_for_all_rows_and_nothing_is_said_that_may_be_wrong(tmp_path: Path) -> None:
    kinds = {
        "whole": pa.int32(),
        "text": pa.string(),
        "long": pa.string(),
        "float": pa.float64(),
        "nan": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "nothing": pa.int64(),
        "list": pa.list_(pa.int64()),
    }
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=dt.UTC)
    rows = [
        {"whole": 3, "text": "b", "long": "x" * 99, "float": 0.5, "nan": math.nan,
         "day": dt.date(2024, 5, 6), "at": at, "nothing": None, "list": [1]},
        {"whole": -1, "text": None, "long": "y", "float": 2.0, "nan": 1.0,
         "day": dt.date(2023, 1, 1), "at": at, "nothing": None, "list": []},
    ]  # fmt: skip
    table = tmp_path / "table"
    schema = pa.schema(kinds)
    batch = pa.RecordBatch.from_pylist(rows, schema)
    write_and_commit(DeltaSink(str(table), schema=schema), tmp_path, batch)
    [one] = added(table)
    assert json.loads(one["stats"]) == {
        "numRecords": 2,
        "minValues": {"whole": -1, "text": "b", "float": 0.5, "day": "2023-01-01",
                      "at": "2024-05-06T07:08:09.123Z"},
        "maxValues": {"whole": 3, "text": "b", "float": 2.0, "day": "2024-05-06",
                      "at": "2024-05-06T07:08:09.124Z"},
        "nullCount": {"whole": 0, "text": 1, "long": 0, "float": 0, "nan": 0, "day": 0, "at": 0,
                      "nothing": 2},
    }  # fmt: skip
    # Readers that pass over files by these bounds find what is there.
    for condition in ("nan = 1", f"\"at\" = '{at}'", "whole < 0", "long > 'w'"):
        assert delta_rows(table, f"SELECT count(*) FROM t WHERE {condition}") != [(0,)], condition


def test_partitions_come_back_as_they_were(tmp_path: Path) -> None:
    days = [dt.date(2024, 5, 6), None]
    names = ["plain", "a b/c=%20ü?", None, "../x", "y" * 300]
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string())])
    rows = [
        {"id": n, "day": day, "name": name}
        for n, (day, name) in enumerate(itertools.product(days, names))
    ]
    table = tmp_path / "table"
    sink = DeltaSink(str(table), schema=schema, partition_by=["day", "name"])
    write_and_commit(sink, tmp_path, *rows)
    found = delta_rows(table, "SELECT id, day, name FROM t ORDER BY id")
    assert found == [tuple(row.values()) for row in rows]
    assert len(added(table)) == len(rows)
    only = delta_rows(table, "SELECT count(*) FROM t WHERE day = '2024-05-06' AND name = 'plain'")
    assert only == [(1,)]
    with pytest.raises(rt.SinkDataError, match="an empty text"):
        write_and_commit(sink, tmp_path, {"id": 1, "day": None, "name": ""})


def test_files_end_at_about_the_size_asked_for(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(str(table), schema=SCHEMA, file_size="100kB", compression="none")
    batches = [
        pa.RecordBatch.from_pylist([{"id": n, "name": "x" * 50}] * 1000, SCHEMA) for n in range(10)
    ]
    write_and_commit(sink, tmp_path, *batches)
    assert len(added(table)) == 5
    assert delta_rows(table, "SELECT count(*) FROM t") == [(10_000,)]


# Whole jobs.


@pytest.mark.processes
def test_a_job_writes_each_record_once_beside_another_writer(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    deltalake.DeltaTable.create(table, schema=SCHEMA)
    theirs = pa.table({"id": [-1], "name": ["theirs"]}, schema=SCHEMA)
    deltalake.write_deltalake(table, theirs, mode="append")
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.1)
    named_rows(DeltaSink(table), 3000, job="to-delta").execute(checkpointing=checkpointing)
    assert delta_rows(table, "SELECT count(*), count(DISTINCT id), min(id) FROM t") == [
        (3001, 3001, -1)
    ]
    assert not list(ObjectStore(str(tmp_path / "chk" / "staged")).list())


class Counting(rt.KeyedProcess):
    total = rt.ValueState(0)

    def process(self, record: str, ctx: Any) -> Any:
        self.total.value += 1
        yield {"word": record, "total": self.total.value}


def test_merging_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    schema = pa.schema([("word", pa.string()), ("total", pa.int64())])
    words = [f"w{n % 7}" for n in range(700)]
    env = rt.Environment("totals", parallelism=2)
    counted = env.source(rt.CollectionSource(words, splits=4), uid="words").key_by(lambda w: w)
    sink = DeltaSink(table, mode="merge", key="word", schema=schema)
    counted.process(Counting(), uid="count").sink(sink, uid="out")
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.05)
    env.execute(runner="inline", checkpointing=checkpointing)
    assert dict(delta_rows(table, "SELECT word, total FROM t")) == dict(Counter(words))


# Bad input.


def create(folder: Path, **options: Any) -> str:
    table = str(folder / "table")
    deltalake.DeltaTable.create(table, schema=SCHEMA, **options)
    return table


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"delta.enableRowTracking": "true"}, "rowTracking"),
    ],
)
def test_a_table_that_asks_for_more_is_refused(
    tmp_path: Path, configuration: dict[str, str], message: str
) -> None:
    table = create(tmp_path)
    log = tmp_path / "table/_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            features = ["deletionVectors", "rowTracking", "domainMetadata", "columnMapping"]
            named = [one for one in features if one == message] or ["columnMapping"]
            reader = [one for one in named if one != "rowTracking"]
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7,
                                "readerFeatures": reader, "writerFeatures": named}  # fmt: skip
        if "metaData" in line:
            line["metaData"]["configuration"] = configuration
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(rt.ConfigurationError, match=message):
        DeltaSink(table).validate()


def test_a_table_with_a_constraint_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path)
    deltalake.DeltaTable(table).alter.add_constraint({"small": "id < 5"})
    with pytest.raises(rt.ConfigurationError, match="small"):
        DeltaSink(table).validate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "append or merge"),
        ({"mode": "merge"}, "needs key"),
        ({"key": "id"}, "needs key"),
        ({"mode": "merge", "key": "word"}, "no column 'word'"),
        ({"schema": pa.schema([("id", pa.int32())])}, "other columns"),
        ({"partition_by": "name"}, "partitioned by nothing"),
        ({"compression": "lzw"}, "compression"),
        ({"storage_options": {"AWS_SECRET_ACCESS_KEY": 7}}, "must be text"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    table = create(tmp_path)
    with pytest.raises(rt.ConfigurationError, match=message):
        DeltaSink(table, **options).validate()


def test_a_table_that_is_missing_is_refused_unless_its_columns_are_given(tmp_path: Path) -> None:
    with pytest.raises(rt.ConfigurationError, match="give schema"):
        DeltaSink(str(tmp_path / "nowhere")).validate()
    DeltaSink(str(tmp_path / "nowhere"), schema=SCHEMA).validate()


def test_blanks_and_signs_may_be_in_paths_names_and_values(tmp_path: Path) -> None:
    table = tmp_path / "a folder" / "é +x#?"
    schema = pa.schema([("id", pa.int64()), ("a name", pa.string()), ("a key", pa.string())])
    keys = ["a b", "c/d", "e%20f", "ü=1", None, "x+y", "?#"]
    rows = [{"id": id, "a name": f"n {id}", "a key": key} for id, key in enumerate(keys)]
    env = rt.Environment("odd")
    sink = DeltaSink(str(table), schema=schema, partition_by="a key")
    env.source(rt.CollectionSource(rows), uid="rows").sink(sink, uid="out")
    env.execute(runner="inline", checkpointing=rt.Checkpointing(tmp_path / "a checkpoint"))
    found = delta_rows(table, 'SELECT id, "a name", "a key" FROM t ORDER BY id')
    assert found == [tuple(row.values()) for row in rows]
    source = DeltaSource(str(table), bounded=True)
    splits = [source.open_split(split, None) for split in source.plan_splits(1)]
    read = [
        row for split in splits for batch in iter(split.read, None) for row in batch.to_pylist()
    ]
    assert sorted(read, key=lambda row: row["id"]) == rows


@pytest.mark.parametrize("name", ["a%41", "a[1]", "a|b", "a\\b", "a\tb"])
def test_a_local_path_that_the_library_cannot_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(rt.ConfigurationError, match="another name"):
        DeltaSink(str(tmp_path / name), schema=SCHEMA)
    with pytest.raises(rt.ConfigurationError, match="another name"):
        DeltaSource(str(tmp_path / name))


def test_partitioning_by_fractions_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    with pytest.raises(rt.ConfigurationError, match="'x' of type double"):
        DeltaSink(str(tmp_path / "t"), schema=schema, partition_by="x").validate()


def test_a_table_that_changes_while_the_job_runs_ends_it(tmp_path: Path) -> None:
    table = create(tmp_path)
    sink = DeltaSink(table)
    sink.validate()
    staging = ObjectStore(str(tmp_path / "staged"))
    identity = SinkIdentity("job", "out")
    committer = sink.open_committer(CommitterContext(identity, "out", 1, staging))
    deltalake.DeltaTable(table).alter.add_columns([deltalake.Field("more", "integer")])
    writer = sink.open_writer(SinkContext(identity, "out", 0, 1, 1, staging))
    writer.write(Rows([{"id": 1, "name": "x"}]))
    ready = writer.prepare(1)
    assert ready.finish is not None
    ready.finish()
    with pytest.raises(rt.SinkDataError, match="more int32"):
        committer.commit([Committable(1, handle) for handle in ready.handles])


def test_a_file_that_was_cleaned_away_before_its_commit_is_missed(tmp_path: Path) -> None:
    table = create(tmp_path)

    class Cleaned(ObjectStore):
        def read(self, path: str) -> bytes:
            for file in Path(table).glob("part-*"):
                file.unlink()
            return super().read(path)

    sink = DeltaSink(table)
    identity = SinkIdentity("job", "out")
    staging = Cleaned(str(tmp_path / "staged"))
    writer = sink.open_writer(SinkContext(identity, "out", 0, 1, 1, staging))
    writer.write(Rows([{"id": 1, "name": "x"}]))
    ready = writer.prepare(1)
    assert ready.finish is not None
    ready.finish()
    committer = sink.open_committer(CommitterContext(identity, "out", 1, staging))
    with pytest.raises(rt.JobFailedError, match="VACUUM"):
        committer.commit([Committable(1, handle) for handle in ready.handles])


def test_a_record_of_a_wrong_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(rt.SinkDataError, match="'seven'"):
        write_and_commit(DeltaSink(create(tmp_path)), tmp_path, {"id": "seven", "name": "x"})


def test_a_job_without_checkpoints_is_told_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(rt.ConfigurationError, match="Checkpointing"):
        named_rows(DeltaSink(create(tmp_path)), 10, job="to-delta").execute(runner="inline")
