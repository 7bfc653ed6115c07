"""What a PostgreSQL table can never take is refused when the job is built, or when a record is written."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Columns, Rows
from minirt.io import Handle, Sink, SinkContext, SinkIdentity
from minirt.io.base import Committable, CommitterContext
from minirt.storage.store import ObjectStore
from minirt_connectors.postgres import PostgresChangesSource, PostgresSink
from minirt_connectors.postgres.sink import TableColumns
from tests.postgres.server import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

OWNER = SinkIdentity("job", "out")


def write_and_commit(sink: Sink, folder: Path, *records: Any) -> None:
    """One checkpoint of one writer."""
    staging = ObjectStore(str(folder / "staged"))
    sink.validate()
    writer = sink.open_writer(SinkContext(OWNER, "out", 0, 1, 1, staging))
    for record in records:
        writer.write(Columns(record) if isinstance(record, pa.RecordBatch) else Rows([record]))
    ready = writer.prepare(1)
    if ready.finish is not None:
        ready.finish()
    committer = sink.open_committer(CommitterContext(OWNER, "out", 1, staging))
    handles: list[Handle] = ready.handles
    committer.commit([Committable(1, handle) for handle in handles])
    committer.close()


@pytest.fixture
def fresh(server: Postgres) -> Iterator[Postgres]:
    """The server with nothing in the schema public before and after."""
    # Roles of the tests that follow look up tables, as they may in the schema of a new server.
    clean = (
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "GRANT USAGE ON SCHEMA public TO PUBLIC",
    )
    server.run(*clean, "DROP ROLE IF EXISTS minirt_guest", "CREATE ROLE minirt_guest LOGIN")
    yield server
    server.run("DROP SCHEMA IF EXISTS minirt_guest CASCADE", *clean)
    server.run("DROP OWNED BY minirt_guest", "DROP ROLE minirt_guest")


def as_guest(server: Postgres) -> str:
    """The server for a user who is allowed nothing by himself."""
    head, _, rest = server.uri.partition("://")
    place = rest.rpartition("@")[2]
    return f"{head}://minirt_guest@{place}"


MIDNIGHT = dt.datetime(2026, 1, 1)
SAME_KEYS = {
    "char(3)": ["a", "a ", "a  "],
    "varchar(3)": ["a  ", "a      "],
    "timestamp(0)": [MIDNIGHT, MIDNIGHT + dt.timedelta(microseconds=400_000)],
    "timestamp(2)": [MIDNIGHT + dt.timedelta(microseconds=n) for n in (1000, 2000, 4999)],
    "timestamptz(0)": [
        (MIDNIGHT + dt.timedelta(microseconds=n)).replace(tzinfo=dt.UTC) for n in (0, 499_999)
    ],
    "text COLLATE anycase": ["a", "A"],
    "float8": [0.0, -0.0],
    "bigint": [7, 7],
    "bytea": [b"a", b"a"],
    "date": [dt.date(2026, 1, 1)] * 2,
    "boolean": [True, True],
}


@pytest.mark.parametrize("kind", SAME_KEYS)
def test_of_keys_that_the_table_takes_for_one_the_last_row_counts(
    fresh: Postgres, tmp_path: Path, kind: str
) -> None:
    if "anycase" in kind:
        try:
            fresh.run(
                "CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', "
                "deterministic = false)"
            )
        except Exception as error:
            pytest.skip(f"the server has no ICU: {error}")
    fresh.run(f"CREATE TABLE keyed (id {kind} PRIMARY KEY, n bigint)")
    rows = [{"id": value, "n": n} for n, value in enumerate(SAME_KEYS[kind])]
    write_and_commit(PostgresSink(fresh.uri, "keyed", mode="upsert", key="id"), tmp_path, *rows)
    assert fresh.rows("SELECT n FROM keyed") == [(len(rows) - 1,)]


INDEXES = {
    "UNIQUE (id)": None,
    "UNIQUE (id) INCLUDE (n)": None,
    "UNIQUE (id, n)": "no unique index",
    "UNIQUE (id, abs(n))": "no unique index",
    "UNIQUE (abs(id))": "no unique index",
    "UNIQUE (id) WHERE n > 0": "no unique index",
    "DEFERRABLE": "deferrable",
    'UNIQUE (name COLLATE "C")': "another collation",
}


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_that_upserts_cannot_go_by_is_refused(
    fresh: Postgres, tmp_path: Path, index: str
) -> None:
    key = "name" if "name" in index else "id"
    fresh.run("CREATE TABLE keyed (id bigint NOT NULL, n bigint, name text)")
    if index == "DEFERRABLE":
        fresh.run("ALTER TABLE keyed ADD UNIQUE (id) DEFERRABLE")
    else:
        fresh.run(f"CREATE UNIQUE INDEX ON keyed {index.removeprefix('UNIQUE ')}")
    sink = PostgresSink(fresh.uri, "keyed", mode="upsert", key=key)
    refused = INDEXES[index]
    if refused is not None:
        with pytest.raises(rt.ConfigurationError, match=refused):
            sink.validate()
        return
    rows = [{"id": 1, "n": n, "name": "x"} for n in (1, 2)]
    write_and_commit(sink, tmp_path, *rows)
    assert fresh.rows("SELECT id, n FROM keyed") == [(1, 2)]


@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "key": "id"}], ids=["append", "upsert"])
def test_a_table_in_a_later_schema_of_the_search_path_is_written_where_it_is(
    fresh: Postgres, tmp_path: Path, mode: dict[str, Any]
) -> None:
    fresh.run("CREATE SCHEMA first", "CREATE TABLE keyed (id bigint PRIMARY KEY)")
    uri = f"{fresh.uri}{'&' if '?' in fresh.uri else '?'}options=-csearch_path%3Dfirst,public"
    try:
        write_and_commit(PostgresSink(uri, "keyed", **mode), tmp_path, {"id": 7})
        assert fresh.rows("SELECT id FROM public.keyed") == [(7,)]
    finally:
        fresh.run("DROP SCHEMA first CASCADE")


@pytest.mark.parametrize(
    ("grants", "mode", "refused"),
    [
        ([], {}, "no right to INSERT column 'id'"),
        (["INSERT (id)"], {}, "no right to INSERT column 'n'"),
        (["INSERT"], {}, None),
        (["INSERT"], {"mode": "upsert", "key": "id"}, "no right to SELECT column 'id'"),
        (
            ["INSERT", "SELECT"],
            {"mode": "upsert", "key": "id"},
            "no right to UPDATE column 'n'",
        ),
        (
            ["INSERT", "SELECT (id)"],
            {"mode": "upsert", "key": "id"},
            "no right to SELECT column 'n'",
        ),
        (["INSERT", "SELECT", "UPDATE (n)"], {"mode": "upsert", "key": "id"}, None),
    ],
)
def test_rights_that_the_commit_needs_are_asked_for_when_the_job_is_built(
    fresh: Postgres, tmp_path: Path, grants: list[str], mode: dict[str, Any], refused: str | None
) -> None:
    fresh.run(
        "CREATE TABLE keyed (id bigint PRIMARY KEY, n bigint)",
        "GRANT CREATE, USAGE ON SCHEMA public TO minirt_guest",
        *(f"GRANT {grant} ON keyed TO minirt_guest" for grant in grants),
    )
    sink = PostgresSink(as_guest(fresh), "keyed", **mode)
    if refused is not None:
        with pytest.raises(rt.ConfigurationError, match=refused.replace("(", r"\(")):
            sink.validate()
        return
    write_and_commit(sink, tmp_path, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    assert fresh.rows("SELECT count(*) FROM keyed") == [(2,)]


def test_what_is_no_table_or_hides_rows_is_refused(fresh: Postgres) -> None:
    fresh.run(
        "CREATE TABLE keyed (id bigint)",
        "CREATE VIEW seen AS SELECT * FROM keyed",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM keyed",
        "GRANT ALL ON keyed TO minirt_guest",
        "GRANT USAGE ON SCHEMA public TO minirt_guest",
        "ALTER TABLE keyed ENABLE ROW LEVEL SECURITY",
    )
    PostgresSink(fresh.uri, "keyed").validate()
    for name in ("seen", "kept"):
        with pytest.raises(rt.ConfigurationError, match="no table that rows can be written to"):
            PostgresSink(fresh.uri, name).validate()
    with pytest.raises(rt.ConfigurationError, match="row-level security"):
        PostgresSink(as_guest(fresh), "keyed").validate()


DAYS = pa.schema([("id", pa.int64()), ("value", pa.date32())])
TIMES = pa.schema([("id", pa.int64()), ("value", pa.timestamp("us"))])
ZONED = pa.schema([("id", pa.int64()), ("value", pa.timestamp("us", "UTC"))])
_DAY, _YEAR_9999 = 86_400_000_000, 253_402_300_799_999_999
EDGES = [
    (DAYS, "date", [-2_440_588, 0, 2_145_042_905], [-2_440_589, 2_145_042_906, -(2**31), 2**31 - 1]),
    *(
        (schema, kind, [-2_440_588 * _DAY, -1, _YEAR_9999], [-2_440_588 * _DAY - 1, -(2**63), 2**63 - 1])
        for schema, kind in ((TIMES, "timestamp"), (ZONED, "timestamptz"))
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "kind", "taken", "refused"), EDGES, ids=lambda each: str(each)[:9]
)
def test_a_time_that_postgres_does_not_have_is_refused_when_it_is_written(
    fresh: Postgres,
    tmp_path: Path,
    schema: pa.Schema,
    kind: str,
    taken: list[int],
    refused: list[int],
) -> None:
    def batch(*values: int) -> pa.RecordBatch:
        plain = pa.int32() if schema is DAYS else pa.int64()
        column = pa.array(values, plain).cast(schema.field("value").type)
        return pa.RecordBatch.from_arrays(
            [pa.array(range(len(values)), pa.int64()), column], schema=schema
        )

    fresh.run(f"CREATE TABLE timed (id bigint, value {kind})")
    write_and_commit(PostgresSink(fresh.uri, "timed"), tmp_path, batch(*taken))
    assert fresh.rows("SELECT count(*) FROM timed WHERE isfinite(value)") == [(len(taken),)]
    for value in refused:
        with pytest.raises(
            rt.SinkDataError, match="out: column 'value': PostgreSQL has no such time"
        ):
            TableColumns("out", schema).encode(Columns(batch(value)))


@pytest.mark.parametrize("kind", ["varchar(3)", "char(3)"])
def test_a_text_that_is_too_long_is_refused_when_it_is_written(
    fresh: Postgres, tmp_path: Path, kind: str
) -> None:
    fresh.run(f"CREATE TABLE named (id bigint, name {kind})")
    sink = PostgresSink(fresh.uri, "named")
    fits = [{"id": n, "name": name} for n, name in enumerate(["", "äöü", "abc  ", None, "日本語"])]
    write_and_commit(sink, tmp_path, *fits)
    assert fresh.rows("SELECT count(*) FROM named") == [(len(fits),)]
    for long in ("abcd", "日本語x", "ab cd", "a  \t"):
        with pytest.raises(rt.SinkDataError, match=r"'name': the table takes at most 3 .*'id': 9"):
            write_and_commit(sink, tmp_path, {"id": 9, "name": long})


def test_rows_that_a_policy_hides_are_no_beginning_of_changes(fresh: Postgres) -> None:
    fresh.run(
        "CREATE TABLE owned (id bigint PRIMARY KEY, owner text)",
        "INSERT INTO owned VALUES (1, 'ada'), (2, 'bob')",
        "ALTER TABLE owned ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON owned FOR SELECT USING (owner = 'ada')",
        "CREATE PUBLICATION hidden FOR TABLE owned",
        "ALTER ROLE minirt_guest REPLICATION",
        "GRANT SELECT ON owned TO minirt_guest",
        "GRANT CREATE, USAGE ON SCHEMA public TO minirt_guest",
    )
    try:
        source = PostgresChangesSource(as_guest(fresh), "hidden", slot="hidden", until="now")
        with pytest.raises(rt.MinirtError, match="row-level security"):
            source.plan_splits(1)
    finally:
        fresh.run("DROP PUBLICATION hidden")


def test_timeouts_of_the_server_do_not_end_a_reader_that_waits_for_its_job(
    fresh: Postgres,
) -> None:
    from minirt_connectors.postgres.server import Server

    fresh.run(
        "ALTER ROLE minirt_guest SET idle_in_transaction_session_timeout = '100ms'",
        "ALTER ROLE minirt_guest SET statement_timeout = '100ms'",
        "ALTER ROLE minirt_guest SET idle_session_timeout = '100ms'",
    )
    connection = Server(as_guest(fresh)).session()
    try:
        time.sleep(0.3)
        connection.execute("BEGIN")
        time.sleep(0.3)
        connection.execute("SELECT pg_sleep(0.3)")
        connection.execute("COMMIT")
    finally:
        connection.close()


def test_no_transaction_stays_open_once_what_was_decoded_is_fetched(fresh: Postgres) -> None:
    """It would hold back the clean-up of the whole database while the job has no room for more."""
    from minirt_connectors.postgres.server import Server
    from minirt_connectors.postgres.slot_reader import SlotReader
    from minirt_connectors.postgres.slots import Slot

    fresh.run("CREATE TABLE read (id bigint PRIMARY KEY)", "CREATE PUBLICATION read FOR TABLE read")
    slot = Slot(Server(fresh.uri), "minirt_open", "read")
    with slot.session("cannot begin") as connection:
        began = slot.create(connection)
    fresh.run("INSERT INTO read SELECT generate_series(1, 20000)")
    reader = SlotReader(slot, began)
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    try:
        messages, through = reader.take()
        assert messages
        assert fresh.rows(open_ones) == [(0,)]
        count = len(messages)
        while through is None:
            messages, through = reader.take()
            count += len(messages)
        assert count == 20_000 + 3  # The relation, and where the transaction begins and ends.
        assert reader.take()[0] == []
    finally:
        reader.close()
        fresh.run("SELECT pg_drop_replication_slot('minirt_open')", "DROP PUBLICATION read")


def test_a_standby_is_refused(fresh: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log cannot be read as that of a primary: the place where it ends is asked for in vain."""
    from minirt_connectors.postgres import slots

    fresh.run("CREATE TABLE read (id bigint PRIMARY KEY)", "CREATE PUBLICATION read FOR TABLE read")
    source = PostgresChangesSource(fresh.uri, "read", slot="minirt_standby")
    source.validate()
    ask = slots.rows

    def of_a_standby(connection: Any, asked: str, *given: Any) -> Any:
        return [(True,)] if "pg_is_in_recovery" in asked else ask(connection, asked, *given)

    monkeypatch.setattr(slots, "rows", of_a_standby)
    with pytest.raises(rt.ConfigurationError, match=r"standby.*URI of the primary"):
        source.validate()
    fresh.run("DROP PUBLICATION read")
