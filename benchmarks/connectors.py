"""What connectors manage on their own server or disk: `python -m benchmarks.connectors CASE`.

`append` writes columns to a new PostgreSQL table, `changes` reads what was done to one, and `delta` and
`iceberg` time commits of so many files to a table that has as many. `json-lines` writes bids of NexMark
into memory, `json-lines-read` reads a file of them, and `json-lines-read-short` one of shorter records,
each as columns and as rows.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as pa_json

import minirt as rt
from benchmarks.index_source import IndexSource
from benchmarks.measure import milliseconds, print_rows, run
from benchmarks.servers import postgres_server
from minirt.data.batch import Columns
from minirt.io.base import Committable, CommitterContext, Sink, SinkContext, SinkIdentity
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.workload import Workload
from minirt.storage.store import ObjectStore

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("name", pa.string())])
_TABLE, _SLOT = "minirt_benchmark", "minirt_benchmark"
_IDENTITY = SinkIdentity("benchmark", "out")
_READS = 3
"""Of a file: the fastest counts, as the first one loads what it needs."""


def _columns(start: int, stop: int, _: int) -> pa.RecordBatch:
    ids = np.arange(start, stop)
    names = pa.DictionaryArray.from_arrays(ids % 100, [f"name {n:02}" for n in range(100)])
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.array(ids * 0.25), names.cast(pa.string())], schema=SCHEMA
    )


def append(uri: str, records: int) -> dict[str, Any]:
    """Records that a job writes to a table, from all subtasks running to the last commit."""
    from minirt_connectors.postgres import PostgresSink

    with _table(uri, "id bigint, price double precision, name text") as rows:
        env = rt.Environment("append", parallelism=1)
        source = IndexSource(records, lambda: _columns, SCHEMA)
        env.source(source, uid="numbers").sink(PostgresSink(uri, _TABLE), uid="out")
        with tempfile.TemporaryDirectory() as storage:
            measured = run(env, "append", checkpointing=rt.Checkpointing(storage, interval="1s"))
        assert rows(f"SELECT count(*), count(DISTINCT id) FROM {_TABLE}") == [(records, records)]
    return {
        "case": "postgres-append",
        "records_per_s": round(records / measured.running_s),
        "cpu_s": round(measured.cpu_s, 2),
    }


def changes(uri: str, records: int) -> dict[str, Any]:
    """Inserts in transactions of 1,000 that are waiting when a reader begins."""
    from minirt_connectors.postgres import PostgresChangesSource

    with _table(uri, "id bigint PRIMARY KEY, price double precision, name text") as rows:
        rows(f"CREATE PUBLICATION {_TABLE} FOR TABLE {_TABLE}")
        source = PostgresChangesSource(uri, _TABLE, slot=_SLOT, existing=False)
        [split] = source.plan_splits(1)
        for first in range(0, records, 1000):
            rows(
                f"INSERT INTO {_TABLE} SELECT n, n * 0.25, 'name ' || n "
                f"FROM generate_series({first}, {min(first + 1000, records) - 1}) n"
            )
        reader, read, began = source.open_split(split, None), 0, time.monotonic()
        while read < records:
            read += len(reader.read() or ())
        took_s = time.monotonic() - began
        reader.close()
    return {"case": "postgres-changes", "records_per_s": round(records / took_s)}


def delta(files: int, commits: int) -> dict[str, Any]:
    from minirt_connectors.delta import DeltaSink

    with tempfile.TemporaryDirectory() as folder:
        return {
            "case": "delta",
            **_commits(DeltaSink(f"{folder}/t", schema=SCHEMA), files, commits),
        }


def iceberg(files: int, commits: int) -> dict[str, Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    from minirt_connectors.iceberg import IcebergSink

    with tempfile.TemporaryDirectory() as folder:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/c.db",
            "warehouse": f"file://{folder}",
        }
        catalog = SqlCatalog("minirt", **properties)
        catalog.create_namespace("db")
        catalog.create_table("db.t", SCHEMA)
        return {"case": "iceberg", **_commits(IcebergSink(properties, "db.t"), files, commits)}


def json_lines(records: int) -> dict[str, Any]:
    """CPU time of a record, from columns and from rows, in batches of 1,000."""
    batches = _bids()
    rounds = max(1, records // (1000 * len(batches)))
    encoding = rt.JsonlSink("unused").encoding("benchmark")
    row: dict[str, Any] = {"case": "json-lines"}
    for form in ("columns", "rows"):
        began = time.process_time()
        for _ in range(rounds):
            encoder = encoding(io.BytesIO())
            for batch in batches:
                encoder.write(batch if form == "columns" else batch.rows())
        took_s = time.process_time() - began
        row[f"{form}_cpu_ns"] = round(took_s / (rounds * 1000 * len(batches)) * 1e9)
    return row


def json_lines_read(case: str, records: int, batches: Sequence[Columns]) -> dict[str, Any]:
    """CPU time of a record of a file, as columns and as rows, by the reader of the source alone.

    Beside it that of the reader of Arrow without a source: with the columns, and when it is asked for a
    column that is not there, which is the least that it takes.
    """
    rounds = max(1, records // (1000 * len(batches)))
    schema = batches[0].table.schema
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        with path.open("wb") as file:
            encoder = rt.JsonlSink("unused").encoding("benchmark")(file)
            for _ in range(rounds):
                for batch in batches:
                    encoder.write(batch)
        reads: dict[str, Callable[[], int]] = {
            "columns": lambda: _read_by_source(path, schema),
            "rows": lambda: _read_by_source(path, None),
            "arrow": lambda: _read_by_arrow(path, _in_microseconds(schema)),
            "arrow_nothing": lambda: _read_by_arrow(path, pa.schema([("not there", pa.null())])),
        }
        row: dict[str, Any] = {"case": case}
        for form, read in reads.items():
            took_s = []
            for _ in range(_READS):
                began = time.process_time()
                count = read()
                took_s.append(time.process_time() - began)
                assert count == rounds * 1000 * len(batches)
            row[f"{form}_cpu_ns"] = round(min(took_s) / count * 1e9)
    row["columns_are_faster"] = round(row["rows_cpu_ns"] / row["columns_cpu_ns"], 1)
    return row


def _read_by_source(path: Path, schema: pa.Schema | None) -> int:
    """How many records there are."""
    source, count = rt.JsonlSource(path, schema=schema), 0
    for split in source.plan_splits(1):
        reader = source.open_split(split, None)
        while (batch := reader.read()) is not None:
            count += len(batch)
        reader.close()
    return count


def _in_microseconds(schema: pa.Schema) -> pa.Schema:
    """As the reader of Arrow needs it for what `JsonlSink` writes of times."""
    is_time = pa.types.is_timestamp
    return pa.schema([f.with_type(pa.timestamp("us")) if is_time(f.type) else f for f in schema])


def _read_by_arrow(path: Path, schema: pa.Schema) -> int:
    """How many records there are: block by block, in this thread."""
    parsing = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pa_json.ReadOptions(use_threads=False, block_size=1 << 20)
    with pa_json.open_json(path, read_options=reading, parse_options=parsing) as reader:
        return sum(batch.num_rows for batch in reader)


def _bids() -> list[Columns]:
    """Batches of 1,000."""
    bids = generator(Workload()).events("bid", 0, 10_000)
    return [Columns(bids.slice(start, 1000)) for start in range(0, bids.num_rows - 999, 1000)]


def _short() -> list[Columns]:
    """Batches of 1,000 records of three columns, which take some 45 bytes each."""
    return [Columns(_columns(start, start + 1000, 0)) for start in range(0, 9000, 1000)]


def _commits(sink: Sink, files: int, commits: int) -> dict[str, Any]:
    """One commit of as many files as there are writers, then commits of one file, then of as many again."""
    with tempfile.TemporaryDirectory() as folder:
        staging = ObjectStore(folder)
        committer = sink.open_committer(CommitterContext(_IDENTITY, "out", 1, staging))
        took: dict[int, list[float]] = {1: [], files: []}
        counts = (files, *[1] * commits, *[files] * commits)
        for checkpoint, count in enumerate(counts, 1):
            handles = []
            for subtask in range(count):
                context = SinkContext(_IDENTITY, "out", subtask, count, 1, staging)
                writer = sink.open_writer(context)
                writer.write(Columns(_columns(0, 100, 0)))
                ready = writer.prepare(checkpoint)
                if ready.finish is not None:
                    ready.finish()
                handles += [Committable(checkpoint, handle) for handle in ready.handles]
                writer.close()
            began = time.monotonic()
            committer.commit(handles)
            took[count].append(time.monotonic() - began)
        committer.close()
    return {
        "files_in_table": files,
        "one_file_ms": milliseconds(took[1]),
        "all_files_ms": milliseconds(took[files][1:]),
    }


@contextmanager
def _table(uri: str, columns: str) -> Iterator[Callable[[str], list[Any]]]:
    """A new table; gives what runs statements. Table, publication and slot are removed in the end."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:

        def rows(statement: str) -> list[Any]:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

        def clean() -> None:
            rows(f"DROP PUBLICATION IF EXISTS {_TABLE}")
            rows(f"DROP TABLE IF EXISTS {_TABLE}")
            rows(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                f"WHERE slot_name = '{_SLOT}'"
            )

        clean()
        rows(f"CREATE TABLE {_TABLE} ({columns})")
        try:
            yield rows
        finally:
            clean()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cases: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "append": lambda told: append(told.uri, told.records),
        "changes": lambda told: changes(told.uri, told.records),
        "delta": lambda told: delta(told.files, told.commits),
        "iceberg": lambda told: iceberg(told.files, told.commits),
        "json-lines": lambda told: json_lines(told.records),
        "json-lines-read": lambda told: json_lines_read("json-lines-read", told.records, _bids()),
        "json-lines-read-short": lambda told: json_lines_read(
            "json-lines-read-short", told.records, _short()
        ),
    }
    parser.add_argument("case", nargs="+", choices=list(cases))
    parser.add_argument(
        "--uri",
        help="a PostgreSQL database where tables may be made; else a server of the tests is started",
    )
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="of append, changes and json-lines"
    )
    parser.add_argument("--files", type=int, default=100, help="of delta and iceberg")
    parser.add_argument("--commits", type=int, default=20, help="of delta and iceberg")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    told = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if {"append", "changes"} & set(told.case):
            told.uri = stack.enter_context(postgres_server(told.uri))
        print_rows([cases[name](told) for name in told.case], told.json)


if __name__ == "__main__":
    main()
