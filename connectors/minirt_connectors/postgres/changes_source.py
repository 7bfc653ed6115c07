"""Reads the changes of PostgreSQL tables by a logical replication slot, behind the rows that are there."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from minirt.errors import ConfigurationError
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.io.remembered import KEY, Accept, Identity, behind, checked_accept
from minirt.units import Duration, seconds
from minirt_connectors.dbapi import closed
from minirt_connectors.postgres.changes import ChangeDecoder, Record
from minirt_connectors.postgres.existing_rows import (
    Beginning,
    ExistingRows,
    Published,
    begin_with_changes,
    begin_with_rows,
    drop_copies,
)
from minirt_connectors.postgres.log_memory import NONE_YET, LastTransaction
from minirt_connectors.postgres.server import Server
from minirt_connectors.postgres.slot_reader import SlotReader
from minirt_connectors.postgres.slots import Slot, log_end, lsn_number, lsn_text

_CHANGES = -1
"""In an offset, instead of the number of a table: all rows that were there are read."""


class PostgresChangesSource(Source[Record]):
    """Reads what is inserted, updated, deleted and truncated in the tables of a `publication`.

    A job that starts without a checkpoint makes the logical replication slot `slot`, and reads the rows
    that the tables hold where it begins; for that it copies them within the database. Changes follow,
    in the order of their commits, each exactly once. With `existing=False` it reads changes only, from
    where the slot is. It looks for changes every `poll`. `until`, "now" or a place in the log as
    "16/B374D848", makes the source end behind the transactions that have committed before.

    Records are dicts: `operation` ("existing", "insert", "update", "delete", "truncate"), `table`, `key`,
    `old`, `new`, `unchanged` (columns that `new` lacks, as the server does not send large values that an
    update has not touched), `committed_at` (milliseconds), `transaction`, `lsn`.

    There is one split, since changes have one order. The slot is advanced behind each checkpoint.

    A checkpoint remembers the database, the place in the log and the last transaction. A job is refused
    with a SourceChangedError if it is restored with a database of another system (`accept="other"` goes on
    there), or if the log went back and may have grown again (`accept="behind"` goes on at the place, or at
    the end where that is less).

    Raises ConfigurationError for options that cannot work and, when validated, if the server has no such
    publication, no `wal_level` for it, or a slot of that name that cannot be used. Readers raise
    SourceDataError if changes behind the checkpoint are gone.
    """

    def __init__(
        self,
        uri: str,
        publication: str,
        *,
        slot: str,
        existing: bool = True,
        until: str | None = None,
        poll: Duration = "200ms",
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._slot = Slot(Server(uri), slot, publication)
        self._existing = bool(existing)
        if until is not None and not isinstance(until, str):
            raise ConfigurationError(f'until is "now" or a place in the log, got {until!r}')
        if until not in (None, "now"):
            lsn_number(until)
        self._until = until
        self.bounded = until is not None
        self._poll_s = seconds(poll, "poll")
        self._copies_may_be = True
        self._advanced_to = self._stays_until = 0

    def __repr__(self) -> str:
        return f"PostgresChangesSource({self._slot.server.name!r}, {self._slot.publication!r})"

    def validate(self) -> None:
        self._slot.check()

    def identity(self) -> Identity:
        return self._slot.identity()

    def moved(self, split: Split, offset: Offset, kept: Identity) -> tuple[Split, Offset]:
        """The last transaction is one of the other log."""
        return split, None if offset is None else [*offset[:4], None]

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        beginning = (begin_with_rows if self._existing else begin_with_changes)(self._slot)
        return [Split(self._slot.name, {**asdict(beginning), "end": self._end()})]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        plain = {name: value for name, value in split.info.items() if name != KEY}
        end = plain.pop("end")
        tables = [Published(**table) for table in plain.pop("tables")]
        beginning = Beginning(tables=tables, **plain)
        return _Reader(self._slot, beginning, end, offset, self._poll_s, self.accept)

    def committed(self, offsets: Mapping[str, Offset]) -> None:
        for offset in offsets.values():
            if offset is None or offset[0] != _CHANGES:
                continue
            if self._copies_may_be:
                with self._slot.session("cannot drop its copies") as connection:
                    drop_copies(self._slot, connection)
                self._copies_may_be = False
            self._advance(offset[2])

    def _advance(self, lsn: int) -> None:
        """Move the slot on. After a crash it may be where it was before, and so it is in an old backup.

        Then it stays until the position has moved: a reader has compared the log by then.
        """
        if lsn <= self._stays_until:
            return
        at = self._slot.advance(lsn, self._advanced_to)
        if at < self._advanced_to:
            self._stays_until = lsn
        self._advanced_to = at

    def _end(self) -> int | None:
        if self._until is None:
            return None
        if self._until != "now":
            return lsn_number(self._until)
        with self._slot.session("cannot look where the log is") as connection:
            return log_end(connection)


class _Reader(SplitReader):
    """The offset is a table and a block of its copy, a position of changes, see `ChangeDecoder`, and the
    last transaction that was read. Offsets of versions up to 0.1.0 lack the latter.
    """

    def __init__(
        self,
        slot: Slot,
        beginning: Beginning,
        end: int | None,
        offset: Offset,
        poll_s: float,
        accept: Collection[str],
    ) -> None:
        self._slot = slot
        self._accept = accept
        self._beginning = beginning
        self._poll_s = poll_s
        first = 0 if beginning.copied else _CHANGES
        self._table: int
        self._block: int
        self._table, self._block, done, skip, *kept = offset or (
            first,
            0,
            beginning.lsn,
            0,
            NONE_YET.to_plain(),
        )
        last = LastTransaction(*kept[0]) if kept and kept[0] is not None else None
        keys = {table.table: table.key for table in beginning.tables}
        self._decoder = ChangeDecoder(keys, (done, skip), end, last, slot.primary_key)
        self._session: Any = None
        self._rows: ExistingRows | None = None
        self._changes: SlotReader | None = None
        self._look_at = 0.0
        self._set_offset()

    def read(self) -> list[Record] | None:
        records: list[Record] = []
        while not records and self._table != _CHANGES:
            records = self._read_rows()
        if records:
            return records
        if self._decoder.ended:
            return None
        return self._read_changes()

    def close(self) -> None:
        self._close_rows()
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.close()

    def _read_rows(self) -> list[Record]:
        if self._session is None:
            self._session = self._slot.server.session()
        with self._slot.server.errors(f"slot {self._slot.name}: cannot read a copy"):
            if self._rows is None:
                self._slot.lock(self._session)
                self._rows = ExistingRows(self._slot, self._session, self._beginning)
            records, following = self._rows.read(self._table, self._block)
        self._block = following or 0
        if following is None:
            self._table += 1
            if self._table == len(self._beginning.tables):
                self._table = _CHANGES
                self._close_rows()
        self._set_offset()
        return records

    def _read_changes(self) -> list[Record] | None:
        now = time.monotonic()
        if now < self._look_at:
            return []
        if self._changes is None:
            self._changes = self._opened(self._decoder.position[0])
        messages, through = self._changes.take()
        records = self._decoder.feed(messages)
        if through is not None:
            self._decoder.caught_up(through)
            if not messages:
                self._look_at = now + self._poll_s
        self._set_offset()
        return None if self._decoder.ended and not records else records

    def _opened(self, position: int) -> SlotReader:
        """Read the log from a position on, and have it compared with what was read of it before."""
        changes = SlotReader(self._slot, position, self._accept)
        last = self._decoder.last

        def complain(found: str) -> None:
            who = f"{self._slot.server.name}: slot {self._slot.name}"
            kept = f"{lsn_text(position)} of the log" + (f", behind {last}" if last else "")
            way_on = "reading goes on at that place of the log that is there now"
            behind(who, kept, found, way_on, self._accept)

        self._decoder.begin_at(changes.begins_at, changes.confirmed, complain)
        return changes

    def _set_offset(self) -> None:
        last = self._decoder.last
        known = None if last is None else last.to_plain()
        self.offset = [self._table, self._block, *self._decoder.position, known]

    def _close_rows(self) -> None:
        session, self._session, self._rows = self._session, None, None
        if session is not None:
            closed(session)
