"""What the kit asks of whoever puts a sink to the test, and the ways in which a call can fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from minirt.errors import MinirtError, StorageError
from minirt.io.base import Sink
from minirt.io.ledger import (
    LedgerConnection,
    LedgerEntry,
    LedgerSink,
    LedgerTransaction,
)
from minirt.testing.faults import ProcessDiedError

T = TypeVar("T")


class SinkTrial(ABC):
    """A sink under test, and the place that it writes to.

    Records are dicts of a whole number `id` and a text `name`. A factory on the command line is called
    without arguments and gives a trial; a class will do.
    """

    @abstractmethod
    def begin(self) -> None:
        """Start over with an empty place. Called ahead of each life."""

    @abstractmethod
    def sink(self) -> Sink:
        """A sink as a new process would make it; all write to the one place."""

    @abstractmethod
    def visible(self) -> Sequence[int]:
        """The ids of the records that a reader sees there now."""

    def end(self) -> None:
        """No life follows: release what the trial holds."""


class LostAnswerError(StorageError):
    """A call that failed on purpose; whether it had its effect is not known to who made it."""


class Fault:
    """What happens at one call of many: the process dies or an error comes, ahead of it or behind it."""

    KINDS = ("dies before", "dies behind", "error before", "error behind")

    def __init__(
        self,
        at: int | None,
        kind: str,
        note: Callable[[str], None],
        error: type[MinirtError] = LostAnswerError,
    ) -> None:
        self._left = at
        self._kind = kind
        self._error = error
        self._note = note
        self.struck = False
        self.dead = False

    def arm(self, fresh: Fault) -> None:
        """Strike anew, as `fresh` says: the process lives on, and makes other calls."""
        self._left, self._kind, self._error = fresh._left, fresh._kind, fresh._error
        self.struck = False

    def call(self, action: str, do: Callable[[], T]) -> T:
        """Make a call, unless it is not to be made."""
        if self.dead:
            raise ProcessDiedError
        if self._left is None or self.struck:
            return do()
        if self._left > 0:
            self._left -= 1
            return do()
        self.struck = True
        self._note(f"  {self._kind} {action}")
        died, before = self._kind.startswith("dies"), self._kind.endswith("before")
        self.dead = died
        if not before:
            do()
        if died:
            raise ProcessDiedError
        raise self._error(f"injected: no answer to {action}")


class FaultyStaging:
    """Objects in memory that outlive every process; the calls of one process can fail."""

    def __init__(self, objects: dict[str, bytes], fault: Fault) -> None:
        self._objects = objects
        self._fault = fault

    @property
    def root(self) -> str:
        return "staging://kit"

    def write(self, path: str, data: Any) -> None:
        content = data if isinstance(data, bytes) else b"".join(data)
        self._fault.call("stage a piece", lambda: self._objects.update({path: content}))

    def read(self, path: str) -> bytes:
        def content() -> bytes:
            if path not in self._objects:
                raise StorageError("what is to be read is not staged any more")
            return self._objects[path]

        return self._fault.call("read a piece", content)

    def delete(self, path: str) -> None:
        self._fault.call("delete a piece", lambda: self._objects.pop(path, None))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def list(self, prefix: str = "") -> Sequence[str]:
        def paths() -> list[str]:
            return sorted(path for path in self._objects if path.startswith(f"{prefix}/"))

        return self._fault.call("list what is staged", paths)

    def at(self, url: str) -> FaultyStaging:
        return self


class _FaultyConnection(LedgerConnection):
    """The connection of a process whose calls can fail: it breaks off, and the system rolls back."""

    def __init__(self, connection: LedgerConnection, fault: Fault) -> None:
        self._connection = connection
        self._fault = fault

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        fault = self._fault
        begun = fault.call("begin", self._connection.transaction)
        sent = False

        def commit() -> None:
            nonlocal sent
            sent = True
            begun.__exit__(None, None, None)

        transaction = begun.__enter__()
        try:
            yield _FaultyTransaction(transaction, fault)
            fault.call("commit", commit)
        except BaseException as error:
            if not sent:
                _roll_back(begun, error)
            raise

    def close(self) -> None:
        self._connection.close()


def _roll_back(begun: Any, error: BaseException) -> None:
    try:
        begun.__exit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error:
            raise


class _FaultyTransaction(LedgerTransaction):
    def __init__(self, transaction: LedgerTransaction, fault: Fault) -> None:
        self._transaction = transaction
        self._fault = fault

    def entry(self, owner: str) -> LedgerEntry | None:
        return self._fault.call("read the ledger", lambda: self._transaction.entry(owner))

    def write(self, piece: bytes) -> None:
        self._fault.call("write a piece", lambda: self._transaction.write(piece))

    def record(self, owner: str, entry: LedgerEntry) -> None:
        text = f"record {entry.checkpoint_id} in the ledger"
        self._fault.call(text, lambda: self._transaction.record(owner, entry))


def with_faults(sink: Sink, fault: Fault) -> Sink:
    """The sink of a process whose calls can fail: those that a ledger sink makes to its system."""
    if isinstance(sink, LedgerSink):
        connect = sink.connect

        def faulty() -> LedgerConnection:
            return _FaultyConnection(fault.call("connect", connect), fault)

        sink.connect = faulty  # type: ignore[method-assign]
    return sink
