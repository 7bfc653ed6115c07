"""The rows that tables hold where a slot begins, copied within the database so that they stay the same.

The copies are materialized views: the server keeps them over crashes, and publishes them to nobody.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from minirt.errors import ConfigurationError, SourceDataError, StorageError
from minirt_connectors.dbapi import rows, run
from minirt_connectors.postgres.changes import Record, from_text, record
from minirt_connectors.postgres.server import quoted
from minirt_connectors.postgres.slots import Slot, lsn_number

_BLOCKS = 32
"""How many blocks of a copy are read at a time, usually of 8 KiB."""

_ATTEMPTS = 10
"""How often a start makes a slot anew as tables have changed too much since."""
_UNFINISHED_WAIT_S = 30.0

_TABLES = """
SELECT n.nspname::text, c.relname::text, c.relkind = 'r', p.rowfilter,
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND a.attgenerated = '' AND a.attname = ANY(p.attnames) ORDER BY a.attnum),
  ARRAY(SELECT a.atttypid::int8 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND a.attgenerated = '' AND a.attname = ANY(p.attnames) ORDER BY a.attnum),
  ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
        AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
        WHEN 'n' THEN false ELSE i.indisprimary END ORDER BY a.attnum)
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = %s ORDER BY 1, 2
"""

_REWRITTEN = """
SELECT 1 FROM (SELECT relid FROM pg_partition_tree(%s) UNION SELECT %s::regclass) AS part
LEFT JOIN pg_class AS was ON was.oid = part.relid
WHERE pg_relation_filenode(part.relid) IS DISTINCT FROM nullif(was.relfilenode, 0) LIMIT 1
"""
"""Whether a table, or a partition of it, has another file than the snapshot says: functions look at what
is, and queries see what was."""

_UNFINISHED = """
SELECT 1 FROM pg_current_snapshot() AS snapshot,
  CAST(pg_snapshot_xmin(snapshot)::text AS int8) AS oldest,
  CAST(pg_snapshot_xmax(snapshot)::text AS int8) AS next,
  generate_series(oldest, next - 1) AS number, CAST(number::text AS xid8) AS id
WHERE pg_visible_in_snapshot(id, snapshot) AND pg_xact_status(id) = 'in progress' LIMIT 1
"""
"""Whether a transaction has not ended that the snapshot sees as committed."""


@dataclass(frozen=True, slots=True)
class Published:
    """A table as a publication has it. `rows_of` selects its rows; `kinds` are the types of `columns`."""

    table: str
    columns: list[str]
    kinds: list[int]
    key: list[str]
    rows_of: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a job begins: the place in the log, and the rows that tables hold there, if they are read."""

    lsn: int
    at_ms: int
    publication: str
    tables: list[Published]
    copied: bool


def published(connection: Any, publication: str) -> dict[str, Published]:
    """The tables of a publication, with its columns and rows, by their names in SQL."""
    tables = {}
    for schema, table, plain, rowfilter, columns, kinds, key in rows(
        connection, _TABLES, (publication,)
    ):
        name = f"{quoted(schema)}.{quoted(table)}"
        # Tables that inherit from a plain one are published themselves.
        place = f"ONLY {name}" if plain else name
        where = f" WHERE {rowfilter}" if rowfilter else ""
        rows_of = f"SELECT {', '.join(map(quoted, columns))} FROM {place}{where}"
        tables[name] = Published(f"{schema}.{table}", columns, kinds, key, rows_of)
    return tables


def begin_with_rows(slot: Slot) -> Beginning:
    """Make a slot, and copies of the rows where it begins; or find those of a start that went no further.

    The slot comes last, so what was begun and given up before is made anew.
    Raises ConfigurationError if others have made the slot, or it was advanced already; StorageError if
    others begin with it, or keep changing the tables as a whole.
    """
    with slot.session("cannot copy the rows that are there") as connection:
        # The server goes on with what a start that was killed has asked for last.
        slot.lock(connection)
        confirmed = slot.confirmed(connection)
        if confirmed is not None:
            return _found(slot, connection, confirmed)
        for _ in range(_ATTEMPTS):
            drop_copies(slot, connection)
            beginning = _made(slot, connection)
            if beginning is not None:
                return beginning
    raise StorageError(
        f"{slot.server.name}: slot {slot.name}: each of {_ATTEMPTS} times a table of the publication "
        "was truncated, rewritten or altered just when its rows were to be copied"
    )


def begin_with_changes(slot: Slot) -> Beginning:
    """The place where a slot is; it is made if it is not there."""
    with slot.session("cannot begin") as connection:
        slot.lock(connection)
        lsn = slot.confirmed(connection)
        if lsn is None:
            lsn = slot.create(connection)
        tables = list(published(connection, slot.publication).values())
        return Beginning(lsn, _now_ms(connection), slot.publication, tables, False)


def drop_copies(slot: Slot, connection: Any) -> None:
    """Remove the copies of a slot, if there are any."""
    asked = (
        "SELECT relname::text FROM pg_class WHERE relkind = 'm' AND pg_table_is_visible(oid) "
        f"AND relname ~ '^{_copy_name(slot, '[0-9]+')}$'"
    )
    for (name,) in rows(connection, asked):
        run(connection, f"DROP MATERIALIZED VIEW IF EXISTS {quoted(name)}")


class ExistingRows:
    """Reads the copies, always in the same order. The place in one is a number of a block."""

    def __init__(self, slot: Slot, connection: Any, beginning: Beginning) -> None:
        self._slot = slot
        self._connection = connection
        self._beginning = beginning
        for number, table in enumerate(beginning.tables):
            name = _copy_name(slot, number)
            [(gone,)] = rows(connection, "SELECT to_regclass(%s) IS NULL", (name,))
            if gone:
                raise SourceDataError(
                    f"slot {slot.name}: the copy {name} of {table.table} is gone: it is dropped once a "
                    "checkpoint holds all of its rows. Restore a newer checkpoint, or begin anew"
                )

    def read(self, number: int, block: int) -> tuple[list[Record], int | None]:
        """The rows of some blocks of a copy as records, and the block to go on with if there are more."""
        table, name = self._beginning.tables[number], _copy_name(self._slot, number)
        asked = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int"
        [(blocks,)] = rows(self._connection, asked, (name,))
        following = block + _BLOCKS
        records = self._records(table, name, block, following) if block < blocks else []
        return records, following if following < blocks else None

    def _records(self, table: Published, name: str, block: int, following: int) -> list[Record]:
        parsers = [from_text(kind) for kind in table.kinds]
        statement = (
            f"COPY (SELECT * FROM {quoted(name)} WHERE ctid >= '({block},0)' "
            f"AND ctid < '({following},0)' ORDER BY ctid) TO STDOUT"
        )
        records = []
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for values in copy.rows():
                new = {
                    column: None if value is None else parsed(value)
                    for column, parsed, value in zip(table.columns, parsers, values, strict=True)
                }
                made = record("existing", table.table, self._beginning.lsn, self._beginning.at_ms)
                made["new"] = new
                made["key"] = {column: new[column] for column in table.key} or None
                records.append(made)
        return records


def _found(slot: Slot, connection: Any, confirmed: int) -> Beginning:
    """What a start has made that came to no checkpoint behind these rows."""
    asked = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    [(text,)] = rows(connection, asked, (_copy_name(slot, 0),))
    if text is not None:
        plain = json.loads(text)
        tables = [Published(**table) for table in plain.pop("tables")]
        beginning = Beginning(tables=tables, **plain)
        if (beginning.lsn, beginning.publication) == (confirmed, slot.publication):
            return beginning
    raise ConfigurationError(
        f"slot {slot.name} is there, but not as this job would begin with it: a job has read by it "
        "before, or somebody else has made it. Restore a checkpoint of that job; or drop the slot "
        f"by SELECT pg_drop_replication_slot('{slot.name}'); or read on where it is, without the "
        "rows that are there, by existing=False"
    )


def _made(slot: Slot, connection: Any) -> Beginning | None:
    """A slot, and copies of the rows where it begins; None if tables have changed too much in between."""
    tables = published(connection, slot.publication)
    with slot.session("cannot begin", replication="database") as replication:
        temporary = f"minirt_begin_{replication.info.backend_pid}"
        asked = f"CREATE_REPLICATION_SLOT {temporary} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
        [(_, lsn, snapshot, _)] = rows(replication, asked)
        beginning = Beginning(
            lsn_number(lsn), _now_ms(connection), slot.publication, list(tables.values()), True
        )
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        run(connection, f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        if not _are_as_then(slot, connection, tables):
            run(connection, "ROLLBACK")
            return None
        _copy_rows(slot, connection, beginning)
        run(connection, "COMMIT")
        slot.create_from(connection, temporary)
    return beginning


def _are_as_then(slot: Slot, connection: Any, tables: dict[str, Published]) -> bool:
    """Whether the transaction's snapshot sees the rows that the tables held then; they stay locked.

    TRUNCATE, and ALTER TABLE where it writes a table anew, are not MVCC-safe: once they have committed,
    older snapshots see an empty table. So whoever wants to do that waits from here on, and what was done
    since the snapshot is found by the tables' files.
    """
    _wait_for_unfinished(slot, connection)
    for name in tables:
        run(connection, f"LOCK TABLE {name} IN ACCESS SHARE MODE")
    if published(connection, slot.publication) != tables:
        return False
    return not any(rows(connection, _REWRITTEN, (name, name)) for name in tables)


def _wait_for_unfinished(slot: Slot, connection: Any) -> None:
    """Until all has ended that the transaction's snapshot sees as committed. Raises StorageError.

    The snapshot comes from the log, where a commit stands a moment before the transaction's status does.
    In this moment its rows would be taken for those of one that was rolled back.
    """
    end = time.monotonic() + _UNFINISHED_WAIT_S
    while rows(connection, _UNFINISHED):
        if time.monotonic() > end:
            raise StorageError(
                f"{slot.server.name}: slot {slot.name}: a transaction whose commit is in the log does "
                "not end: it may wait for a standby of synchronous_standby_names"
            )
        time.sleep(0.01)


def _copy_rows(slot: Slot, connection: Any, beginning: Beginning) -> None:
    for number, table in enumerate(beginning.tables):
        name = quoted(_copy_name(slot, number))
        run(connection, f"CREATE MATERIALIZED VIEW {name} AS {table.rows_of}")
    text = json.dumps(asdict(beginning)).replace("'", "''")
    first = quoted(_copy_name(slot, 0))
    run(connection, f"COMMENT ON MATERIALIZED VIEW {first} IS '{text}'")


def _copy_name(slot: Slot, number: int | str) -> str:
    return f"minirt_copy_{slot.name}_{number}"


def _now_ms(connection: Any) -> int:
    asked = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::int8"
    return int(rows(connection, asked)[0][0])
