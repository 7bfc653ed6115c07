"""A logical replication slot: what the server says of it, how it is made, and how it is moved on.

The slot of a job stays where the newest stored checkpoint is. Nobody reads from it: a reader makes a copy
of it that ends with its session, and consumes that. So nothing is decoded again with each look, and a
reader that was lost holds nothing up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from minirt.errors import ConfigurationError, SourceDataError, StorageError
from minirt.io.remembered import Identity
from minirt_connectors.dbapi import closed, rows
from minirt_connectors.postgres.server import Server

_VERSION_MIN = 15
_TAKEN_WAIT_S = 5.0
_LOCK_CLASS = 0x6D696E69
"""Advisory locks of this class and the hash of a slot's name belong to whoever reads by it."""
_NAME = re.compile(r"[a-z0-9_]{1,40}")

_SLOT = """
SELECT plugin, database, temporary, wal_status, (confirmed_flush_lsn - '0/0')::int8
FROM pg_replication_slots WHERE slot_name = %s
"""

_PRIMARY_KEY = """
SELECT a.attname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
JOIN pg_attribute a ON a.attrelid = c.oid
  AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE n.nspname || '.' || c.relname = %s ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot and the publication whose changes it gives. Pickled into workers."""

    server: Server
    name: str
    publication: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                "slot must be a name of up to 40 lower-case letters, digits and _, "
                f"got {self.name!r}"
            )
        if not isinstance(self.publication, str) or not self.publication:
            raise ConfigurationError("publication must be the name of one of the database")

    @contextmanager
    def session(self, action: str, **options: str) -> Iterator[Any]:
        """A connection for the block, with the errors of both as those of minirt."""
        connection = self.server.session(**options)
        try:
            with self.server.errors(f"slot {self.name}: {action}"):
                yield connection
        finally:
            closed(connection)

    def check(self) -> None:
        """Raises ConfigurationError for whatever keeps a job from reading by this slot."""
        try:
            with self.session("cannot look at it") as connection:
                self._check_server(connection)
                self._check_publication(connection)
                missing = self.confirmed(connection) is None
                self._check_free(connection, needed=2 if missing else 1)
                self.lock(connection)
        except (StorageError, SourceDataError) as error:
            raise ConfigurationError(str(error)) from error

    def confirmed(self, connection: Any) -> int | None:
        """What has committed before is gone; None if there is no such slot.

        Raises SourceDataError if nobody can read by it.
        """
        found = rows(connection, _SLOT, (self.name,))
        if not found:
            return None
        plugin, database, temporary, wal_status, confirmed = found[0]
        [(here,)] = rows(connection, "SELECT current_database()")
        if plugin != "pgoutput" or database != here or temporary:
            raise self._error(
                f"it is a slot of {plugin or 'no plugin'} in the database {database}, not one of "
                f"pgoutput in {here} that stays: choose another name"
            )
        if wal_status == "lost":
            raise self._error(
                "the server has removed log that it needs (max_slot_wal_keep_size): changes are "
                f"lost. Drop it by SELECT pg_drop_replication_slot('{self.name}') and begin anew "
                "without a checkpoint"
            )
        return int(confirmed)

    def lock(self, connection: Any) -> None:
        """Take what only one reader has, until the connection is closed. Raises StorageError.

        A reader that was killed has it for a moment more, and so has whoever advances the slot.
        """
        end = time.monotonic() + _TAKEN_WAIT_S
        asked = (
            f"SELECT pg_try_advisory_lock({_LOCK_CLASS}, hashtext(%s)), "
            "(SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s)"
        )
        while True:
            [(mine, pid)] = rows(connection, asked, (self.name, self.name))
            if mine and pid is None:
                return
            if time.monotonic() > end:
                by = "another job that runs" if pid is None else f"the server's process {pid}"
                raise StorageError(f"{self._place}: it is taken by {by}")
            time.sleep(0.05)

    def create(self, connection: Any) -> int:
        """Make it where the log is; returns its beginning."""
        made = "SELECT (lsn - '0/0')::int8 FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        return int(rows(connection, made, (self.name,))[0][0])

    def copy(self, connection: Any) -> str:
        """Make a copy that ends with the connection; returns its name."""
        [(name,)] = rows(connection, "SELECT 'minirt_reader_' || pg_backend_pid()")
        self._copy(connection, self.name, name, "true")
        return str(name)

    def decoded(self, connection: Any, copy: str) -> int:
        """Where the last record of the log ends that was decoded by a copy."""
        asked = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s"
        [(lsn,)] = rows(connection, asked, (copy,))
        return int(lsn)

    def create_from(self, connection: Any, temporary: str) -> None:
        """Make it as a copy that stays of another slot."""
        self._copy(connection, temporary, self.name, "false")

    def advance(self, lsn: int, known: int = 0) -> int:
        """Let the server free what has committed before `lsn`; returns where the slot is then.

        A slot that is before `known`, where it was, stays: the server went back, and a reader must look
        first whether its log is still the one that was read. Raises StorageError.
        """
        with self.session("cannot advance it") as connection:
            confirmed = self.confirmed(connection)
            if confirmed is None:
                raise self.missing()
            if known <= confirmed < lsn:
                asked = "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)"
                rows(connection, asked, (self.name, lsn_text(lsn)))
                confirmed = lsn
        return confirmed

    def identity(self) -> Identity:
        """Tell the system and the database whose log this is from all others. Raises StorageError."""
        asked = "SELECT system_identifier::text, current_database()::text FROM pg_control_system()"
        with self.session("cannot look where it is") as connection:
            [(system, database)] = rows(connection, asked)
        return Identity("PostgreSQL database", database, {"system": system})

    def primary_key(self, table: str) -> list[str]:
        """The columns of the primary key of `schema.table` as it is now. Raises StorageError."""
        with self.session(f"cannot look at {table}") as connection:
            return [name for (name,) in rows(connection, _PRIMARY_KEY, (table,))]

    def missing(self) -> SourceDataError:
        return self._error(
            "there is no such slot, so changes behind the checkpoint are gone: begin anew without a "
            "checkpoint"
        )

    def passed(self, confirmed: int, lsn: int) -> SourceDataError:
        return self._error(
            f"it was advanced to {lsn_text(confirmed)}, so changes from {lsn_text(lsn)} on are "
            "gone: restore a newer checkpoint, or begin anew without one"
        )

    def _copy(self, connection: Any, source: str, copy: str, temporary: str) -> None:
        asked = f"SELECT 1 FROM pg_copy_logical_replication_slot(%s, %s, {temporary})"
        rows(connection, asked, (source, copy))

    def _check_server(self, connection: Any) -> None:
        version = connection.info.server_version // 10000
        if version < _VERSION_MIN:
            raise self._error(
                f"the server is PostgreSQL {version}, this takes {_VERSION_MIN} or later"
            )
        [(standby,)] = rows(connection, "SELECT pg_is_in_recovery()")
        if standby:
            raise self._error(
                "the server is a standby, whose log cannot be read in this way: give the URI of the primary"
            )
        [(level,)] = rows(connection, "SHOW wal_level")
        if level != "logical":
            raise self._error(
                f"the server has wal_level = {level}; set it to logical and restart the server"
            )
        asked = (
            "SELECT rolreplication OR rolsuper, rolname FROM pg_roles WHERE rolname = current_user"
        )
        [(may, role)] = rows(connection, asked)
        if not may:
            raise self._error(f"the user {role} may not replicate: ALTER ROLE {role} REPLICATION")

    def _check_publication(self, connection: Any) -> None:
        asked = "SELECT 1 FROM pg_publication WHERE pubname = %s"
        if not rows(connection, asked, (self.publication,)):
            raise self._error(
                f"the database has no publication {self.publication!r}: CREATE PUBLICATION "
                f"{self.publication} FOR TABLE ..."
            )
        asked = "SELECT 1 FROM pg_publication_tables WHERE pubname = %s LIMIT 1"
        if not rows(connection, asked, (self.publication,)):
            raise self._error(
                f"the publication {self.publication!r} has no table: ALTER PUBLICATION "
                f"{self.publication} ADD TABLE ..."
            )

    def _check_free(self, connection: Any, needed: int) -> None:
        asked = (
            "SELECT current_setting('max_replication_slots')::int - count(*) "
            "FROM pg_replication_slots WHERE NOT temporary"
        )
        [(free,)] = rows(connection, asked)
        if free < needed:
            raise self._error(
                f"max_replication_slots of the server leaves {free} slots, and this takes {needed}"
            )

    def _error(self, text: str) -> SourceDataError:
        return SourceDataError(f"{self._place}: {text}")

    @property
    def _place(self) -> str:
        return f"{self.server.name}: slot {self.name}"


def lsn_text(lsn: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """A place in the log from how PostgreSQL writes it. Raises ConfigurationError."""
    high, slash, low = text.partition("/")
    try:
        if not slash:
            raise ValueError(text)
        return (int(high, 16) << 32) + int(low, 16)
    except ValueError:
        raise ConfigurationError(
            f"a place in the log is written as 16/B374D848, got {text!r}"
        ) from None


def log_end(connection: Any) -> int:
    """How far the log is on the disk of the server."""
    return int(rows(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")[0][0])
