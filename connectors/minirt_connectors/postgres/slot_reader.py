"""Reads the messages of a slot by a copy that ends with the session, so nothing is decoded twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from typing import Any

from minirt.errors import MinirtError, SourceDataError
from minirt.io.remembered import behind
from minirt_connectors.dbapi import closed
from minirt_connectors.postgres.server import quoted
from minirt_connectors.postgres.slots import Slot, log_end, lsn_text

_CHANGES = 50_000
"""How many messages the server decodes at a time; it finishes the transaction that it is in."""
_LOG_BYTES = 32 * 1024 * 1024
"""How much log it goes through at a time."""
_COUNT_FIRST, _COUNT_MAX = 100, 2000
_BYTES = 4 * 1024 * 1024
"""How many messages are fetched at a time: about so many bytes."""
_HELD_BYTES = 64 * 1024 * 1024
"""About how many bytes of messages are held: more than the server decodes, but for a large transaction."""


class SlotReader:
    """Consumes a copy of a slot from its beginning, a few thousand messages at a time.

    Used by one thread. Raises SourceDataError if changes from `position` on are gone, and
    SourceChangedError if the log ends before it.
    """

    def __init__(self, slot: Slot, position: int, accept: Collection[str] = ()) -> None:
        self._slot = slot
        self._connection = slot.server.session()
        self._cursor: Any = None
        self._through = position
        """Up to here the log was decoded, and all of it was taken."""
        self._end = position
        """Up to here at least the cursor goes, unless it holds as many messages as it may."""
        self._taken = 0
        self._count = _COUNT_FIRST
        self._held: deque[tuple[list[bytes], int]] = deque()
        """Messages that were fetched together and not taken yet, and how many bytes they are."""
        self._held_bytes = 0
        self._known: int | None = None
        """Up to where all of the log is through once these are taken; None if that is not known."""
        try:
            with self._errors():
                slot.lock(self._connection)
                confirmed = slot.confirmed(self._connection)
                if confirmed is None:
                    raise slot.missing()
                if position < confirmed:
                    raise slot.passed(confirmed, position)
                end = log_end(self._connection)
                if end < position:
                    behind(
                        f"{slot.server.name}: slot {slot.name}",
                        f"{lsn_text(position)} of the log",
                        f"the log of the server ends at {lsn_text(end)}",
                        "reading goes on at the end of the log",
                        accept,
                    )
                    position = end
                self.begins_at = position
                """Where it reads from."""
                # What is through already is decoded again: the decoder looks whether it is the same.
                self.confirmed = self._through = self._end = confirmed
                """From here on the slot has all transactions."""
                self._copy = slot.copy(self._connection)
        except MinirtError:
            self.close()
            raise

    def take(self) -> tuple[list[bytes], int | None]:
        """The next messages, and up to where all of the log is through if it is known.

        A record of the log ends there. The log on disk may end within one. After a crash of the server
        other records would stand there, and whoever went on from there would pass over them.
        """
        with self._errors():
            if not self._held and self._cursor is None and not self._look():
                return [], self._through
            if self._cursor is not None:
                self._fetch()
            messages, size = self._held.popleft() if self._held else ([], 0)
            self._held_bytes -= size
            return messages, None if self._held or self._cursor is not None else self._known

    def _fetch(self) -> None:
        """Fetch what the server has decoded, as much as may be held, and end the transaction behind it.

        For as long as a transaction is open, nothing in the database can be cleaned up (VACUUM).
        """
        while self._held_bytes < _HELD_BYTES:
            asked = self._count
            messages = [data for (data,) in self._cursor.fetchmany(asked)]
            size = sum(map(len, messages))
            if messages:
                self._held.append((messages, size))
                self._held_bytes += size
            self._taken += len(messages)
            if len(messages) < asked:
                self._leave()
                self._known = None
                if self._taken < _CHANGES:
                    self._through = max(
                        self._through, self._slot.decoded(self._connection, self._copy)
                    )
                    self._known = self._through
                return
            self._count = max(1, min(_COUNT_MAX, _BYTES // (size // asked + 1)))

    def close(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with suppress(Exception):  # The connection may be gone.
                cursor.close()
        closed(self._connection)

    def _look(self) -> bool:
        """Have the server decode what follows; False if nothing does."""
        self._end = min(log_end(self._connection), self._through + _LOG_BYTES)
        if self._end <= self._through:
            return False
        self._connection.execute("BEGIN")
        self._taken = 0
        self._cursor = self._connection.cursor("minirt_changes", binary=True)
        self._cursor.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, %s::pg_lsn, %s, "
            "'proto_version', '1', 'publication_names', %s)",
            (self._copy, lsn_text(self._end), _CHANGES, quoted(self._slot.publication)),
        )
        return True

    def _leave(self) -> None:
        self._cursor.close()
        self._cursor = None
        self._connection.execute("COMMIT")

    def _errors(self) -> AbstractContextManager[None]:
        return self._slot.server.errors(
            f"slot {self._slot.name}: cannot read changes", SourceDataError
        )
