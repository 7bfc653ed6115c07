"""A system in memory that has transactions and a ledger, and a sink that writes to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from minirt.data.batch import Batch
from minirt.errors import StorageError
from minirt.io.base import Sink
from minirt.io.encoder import Encoder
from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerSink, LedgerTransaction
from minirt.testing.sinks.trial import SinkTrial


class FakeSystem:
    """What is committed: records, and a ledger. Of two transactions at a time, the later one fails."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.ledger: dict[str, LedgerEntry] = {}
        self.version = 0


class FakeSystemSink(LedgerSink):
    """Writes the ids of records; every connection gives transactions of the one system."""

    piece_bytes = 40  # So that a checkpoint has several.

    def __init__(self, system: FakeSystem) -> None:
        self.system = system

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        return _IdEncoder

    def connect(self) -> LedgerConnection:
        return FakeConnection(self.system)


class FakeConnection(LedgerConnection):
    """Isolation by a version: who commits must have begun at the newest one."""

    def __init__(self, system: FakeSystem) -> None:
        self._system = system
        self._open = True

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        if not self._open:
            raise StorageError("the connection is closed")
        begun_at = self._system.version
        transaction = FakeTransaction(self._system)
        yield transaction
        if self._system.version != begun_at:
            raise StorageError("another transaction was faster")
        if not self._open:
            raise StorageError("the connection is closed")
        self._system.records += transaction.written
        self._system.ledger |= transaction.recorded
        self._system.version += bool(transaction.recorded or transaction.written)

    def close(self) -> None:
        self._open = False


class FakeTransaction(LedgerTransaction):
    """Keeps what is written until it is committed."""

    def __init__(self, system: FakeSystem) -> None:
        self._system = system
        self.written: list[int] = []
        self.recorded: dict[str, LedgerEntry] = {}

    def entry(self, owner: str) -> LedgerEntry | None:
        return {**self._system.ledger, **self.recorded}.get(owner)

    def write(self, piece: bytes) -> None:
        self.written += [int(line) for line in piece.splitlines()]

    def record(self, owner: str, entry: LedgerEntry) -> None:
        self.recorded[owner] = entry


class FakeTrial(SinkTrial):
    """The fake system under test, with the sink that `make` makes for it."""

    def __init__(self, make: Callable[[FakeSystem], Sink] = FakeSystemSink) -> None:
        self._make = make
        self.system = FakeSystem()

    def begin(self) -> None:
        self.system = FakeSystem()

    def sink(self) -> Sink:
        return self._make(self.system)

    def visible(self) -> Sequence[int]:
        return self.system.records


class _IdEncoder(Encoder):
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, batch: Batch) -> None:
        lines = [json.dumps(record["id"]) for record in batch.rows().records]
        self._stream.write("".join(f"{line}\n" for line in lines).encode())

    def finish(self) -> None:
        self._stream.flush()

    def abandon(self) -> None:
        """Nothing is held."""
