"""A sink that stands for the outside world of a simulation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from minirt.data.batch import Batch
from minirt.errors import StorageError
from minirt.io.base import Handle, Prepared, Sink, SinkContext, SinkIdentity, SinkWriter

_numbers = itertools.count()
_sinks: WeakValueDictionary[int, TransactionalSink] = WeakValueDictionary()


class TransactionalSink(Sink):
    """Keeps pending and committed output in memory; all copies within the process share it.

    `rows` is what the outside world sees, in the order of the commits. It survives every crash of a
    simulation; `simulate` empties it at the start.
    """

    opens_again = True

    def __init__(self) -> None:
        self._number = next(_numbers)
        self._pending: dict[str, list[Any]] = {}
        self._committed: dict[str, list[Any]] = {}
        self._prepared_for: dict[str, int] = {}
        self._owners: dict[SinkIdentity, int] = {}
        """Numbers for names, since identities differ from one simulation to the next."""
        _sinks[self._number] = self

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return (_shared, (self._number,))

    @property
    def rows(self) -> list[Any]:
        """All committed records."""
        return [record for rows in self._committed.values() for record in rows]

    @property
    def committed(self) -> dict[str, list[Any]]:
        """The records behind each committed handle's `id`, in the order of the commits."""
        return dict(self._committed)

    @property
    def pending(self) -> dict[str, list[Any]]:
        """The records behind each handle's `id` that were prepared and neither committed nor discarded."""
        return dict(self._pending)

    @property
    def alike(self) -> list[str]:
        """The ids of committed parts that one subtask has prepared for a checkpoint id which it had before.

        Other sinks tell parts by these, and take such a one for repeated.
        """
        seen: set[tuple[str, int]] = set()
        found = []
        for id, checkpoint_id in self._prepared_for.items():
            part = (id.rsplit("-", 2)[0], checkpoint_id)
            found += [id] if part in seen else []
            seen.add(part)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._pending.clear()
        self._committed.clear()
        self._prepared_for.clear()
        self._owners.clear()

    def load(
        self, pending: Mapping[str, Sequence[Any]], committed: Mapping[str, Sequence[Any]]
    ) -> None:
        """Let the outside world be as it was when these were `pending` and `committed`."""
        self._pending = {id: list(rows) for id, rows in pending.items()}
        self._committed = {id: list(rows) for id, rows in committed.items()}

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(self, context)

    def store_pending(self, id: str, rows: list[Any]) -> None:
        self._pending[id] = rows

    def commit(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            id = handle["id"]
            if id in self._committed:
                continue
            if id not in self._pending:
                raise StorageError("output of a completed checkpoint is lost", id)
            self._committed[id] = self._pending.pop(id)
            self._prepared_for[id] = handle["checkpoint"]

    def discard_uncommitted(
        self, committed: Sequence[Handle], identity: SinkIdentity, before_generation: int
    ) -> None:
        keep = {handle["id"] for handle in committed}
        for id in [id for id in self._pending if id not in keep]:
            owner, _, rest = id.rpartition("/")
            if owner == self.owner(identity) and int(rest.split("-")[1]) < before_generation:
                del self._pending[id]

    def owner(self, identity: SinkIdentity) -> str:
        """How names of output begin that belongs to this identity."""
        return f"{identity.uid}/{self._owners.setdefault(identity, len(self._owners))}"


class _Writer(SinkWriter):
    def __init__(self, sink: TransactionalSink, context: SinkContext) -> None:
        self._sink = sink
        # No other output of this begins so but of writers before this one, which had other checkpoint ids.
        owner = sink.owner(context.identity)
        self._name = f"{owner}/{context.subtask}-{context.generation}"
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        self._rows += batch.rows().records

    def prepare(self, checkpoint_id: int) -> Prepared:
        if not self._rows:
            return Prepared()
        rows, self._rows = self._rows, []
        id = f"{self._name}-{checkpoint_id}"
        return Prepared(
            [{"id": id, "checkpoint": checkpoint_id}], lambda: self._sink.store_pending(id, rows)
        )


def _shared(number: int) -> TransactionalSink:
    return _sinks[number]
