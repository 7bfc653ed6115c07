"""Sinks for trying things out: print, collect in memory, throw away."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from minirt.data.batch import Batch
from minirt.data.errors import UnsupportedRecordError
from minirt.data.values import pack_value, unpack_value
from minirt.io.base import Handle, Prepared, Sink, SinkContext, SinkWriter
from minirt.units import positive


class PrintSink(Sink):
    """Prints records at once, one a line after `prefix`, from each subtask at most `limit` of them.

    Characters that the output lacks are escaped. What is printed cannot be taken back: after a recovery,
    records are printed again (at-least-once).
    """

    opens_again = True

    def __init__(self, prefix: str = "", limit: int | None = None) -> None:
        self._prefix = prefix
        self._limit = None if limit is None else positive("limit", limit)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _PrintWriter(self._prefix, self._limit)


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str, left: int | None) -> None:
        self._prefix = prefix
        self._left = left

    def write(self, batch: Batch) -> None:
        if self._left is not None:
            batch = batch.slice(0, min(self._left, len(batch)))
            self._left -= len(batch)
        text = "".join([f"{self._prefix}{record}\n" for record in batch.rows().records])
        try:
            sys.stdout.write(text)  # one write: subtasks share the terminal
        except UnicodeEncodeError:
            encoding = getattr(sys.stdout, "encoding", None) or "ascii"
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


class CollectSink(Sink):
    """Collects records in `rows` of the instance that the user holds, when their checkpoint completes.

    For tests and small results: rows travel inside checkpoints. A program that restores a checkpoint
    finds in `rows` what that one held, but nothing of those before it. A job that runs again from the
    beginning adds its rows to those of the run before. Columns are collected as dicts.
    """

    opens_again = True

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._committed: set[tuple[Any, ...]] = set()

    def __reduce__(self) -> tuple[type[CollectSink], tuple[()]]:
        """A copy in a worker only writes; it needs nothing of what was collected."""
        return (type(self), ())

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _CollectWriter(context)

    def redirected(self, folder: str) -> Sink:
        """Itself: it collects in memory."""
        return self

    def commit(self, handles: Sequence[Handle]) -> None:
        for handle in sorted(handles, key=lambda handle: (handle["checkpoint"], handle["subtask"])):
            part = tuple(handle.get(name) for name in _PART)
            if part not in self._committed:
                self._committed.add(part)
                rows = handle["rows"]
                self.rows.extend(unpack_value(rows) if isinstance(rows, bytes) else rows)


_PART = ("job", "uid", "operator", "checkpoint", "subtask")
"""Tells the parts of the output of all jobs apart. Handles of minirt 0.1 name only the operator."""


class _CollectWriter(SinkWriter):
    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        self._rows.extend(batch.rows().records)

    def prepare(self, checkpoint_id: int) -> Prepared:
        if not self._rows:
            return Prepared()
        rows, self._rows = self._rows, []
        handle: Handle = {
            "job": self._context.identity.job,
            "uid": self._context.identity.uid,
            "checkpoint": checkpoint_id,
            "subtask": self._context.subtask,
            "rows": _packed(rows),
        }
        return Prepared([handle])


def _packed(rows: list[Any]) -> bytes | list[Any]:
    """Handles are stored as plain msgpack, which knows neither tuples nor dates.

    Rows of types that nothing can store are left as they are: without checkpoints that does no harm.
    """
    try:
        return pack_value(rows)
    except UnsupportedRecordError:
        return rows


class DiscardSink(Sink):
    """Takes records and forgets them."""

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _DiscardWriter()

    def redirected(self, folder: str) -> Sink:
        """Itself: it writes nowhere."""
        return self


class _DiscardWriter(SinkWriter):
    def write(self, batch: Batch) -> None:
        """Nothing to do."""
