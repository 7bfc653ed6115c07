"""Sinks with a ledger: what a checkpoint commits is written in one transaction with the record of it.

A system with transactions cannot be asked whether it holds a record already, but it can hold a *ledger*:
an entry for each `SinkIdentity` that says which checkpoint was committed last. A commit reads the entry,
leaves out what is not newer, writes the rest and the new entry, all in one transaction. So a commit that
is repeated changes nothing, whatever became of the answer to the first one, and also if it is an older one.
Between two commits nothing is open on the other side: no outage is too long.

Until then output is *staged*: writers store it in pieces beside the checkpoints of the job, and the
coordinator reads these when it commits. That writes everything twice, and through one process; it asks for
no more of the other system than transactions.

The entry also says which generation of the job commits. A generation enters itself before it commits
anything, and who finds a higher one than its own is over: it was replaced.

A ledger never knows less than it did. So each transaction compares the entry with the newest checkpoint
that is known to be committed, by this program or by the checkpoint that was restored. An older entry means
that the system went back together with its ledger: the output in between is gone, and the job is refused.

A connector says how to encode a piece (`LedgerSink.encoding`) and gives a `LedgerConnection`.
"""

from __future__ import annotations

import io
import logging
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Generic, Protocol, TypeVar

from minirt.data.batch import Batch
from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    SinkDataError,
    StorageError,
    SupersededError,
)
from minirt.io.base import (
    Committable,
    CommitterContext,
    Handle,
    Prepared,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    Staging,
)
from minirt.io.encoder import Encoder
from minirt.io.remembered import Identity, behind, same
from minirt.wording import given

logger = logging.getLogger("minirt.sinks")

PIECE_BYTES = 32 << 20
"""A writer stores a piece of its output as soon as it is this large; a commit holds one in memory."""

OWNER = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*)?-[0-9a-f]{16}")
_PIECE = re.compile(r"\d{5,}-(?P<generation>\d{4,})-\d{4,}-[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What a ledger knows of one owner of output.

    `generation` is the highest that has ever begun to commit, and `written_by` the highest whose writers'
    output is committed. All are 0 before the first time.
    """

    checkpoint_id: int = 0
    generation: int = 0
    written_by: int = 0


class LedgerTransaction(ABC):
    """All that is done here shows at once, when the transaction is committed, or not at all."""

    @abstractmethod
    def entry(self, owner: str) -> LedgerEntry | None:
        """What was recorded of the owner. Nobody else changes it until this transaction is over.

        Where the system cannot promise that, it must refuse the later of two transactions that record.
        """

    @abstractmethod
    def write(self, piece: bytes) -> None:
        """Write the records of a piece, as `LedgerSink.encoding` has made it.

        They are of the owner whose entry was read last. A committer reads its own entry first of all.
        """

    @abstractmethod
    def record(self, owner: str, entry: LedgerEntry) -> None:
        """Replace the entry of the owner."""


class LedgerConnection(ABC):
    """A connection to the system that output goes to. Used by one thread.

    Its methods, and those of transactions, raise SinkDataError or ConfigurationError for what trying again
    cannot mend, and StorageError for all else.
    """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[LedgerTransaction]:
        """Commits at the end; rolls back if the block raises."""

    @abstractmethod
    def close(self) -> None:
        """Release it, also if it is broken. Raises nothing."""


class LedgerSink(Sink, ABC):
    """A sink that stages output and commits it with a ledger. It needs a job that takes checkpoints."""

    piece_bytes: int = PIECE_BYTES

    accept: Collection[str] = ()
    """Which changes of the other side it accepts: "other", "behind", see `minirt.io.remembered`."""

    def target(self) -> Identity | None:
        """Tell the table or topic that this sink writes to from all others.

        Staged output remembers it, and is not written to another one. None, the default, compares nothing.
        """
        return None

    @abstractmethod
    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        """How one writer turns records into pieces: a function that gives the encoder of a stream."""

    @abstractmethod
    def connect(self) -> LedgerConnection:
        """Connect, within seconds. Called in the coordinator."""

    def holding(self) -> str | None:
        """What it adds to, if there are records already: `the table prices`. None otherwise, and where it
        does no harm to write the same records again.
        """
        return None

    def on_fresh_start(self) -> None:
        held_by = self.holding()
        if held_by is not None:
            logger.warning(
                "%s holds records already, and the job starts from the beginning: if an earlier run of it "
                "has written them, they will be there twice. Go on from its checkpoints with %s, or "
                "empty it first",
                held_by,
                given("restore", "latest"),
            )

    def open_writer(self, context: SinkContext) -> SinkWriter:
        staging, target = _staging_of(context), self.target()
        encoding = self.encoding(context.operator)
        return _LedgerWriter(staging, context, encoding, self.piece_bytes, target)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return LedgerCommitter(self.connect, context, self.accept, self.target)


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A handle: output that waits in one object of a staging.

    `target` is where it is to go; None for output of older versions, which did not say.
    """

    checkpoint_id: int
    root: str
    owner: str
    name: str
    generation: int
    target: Identity | None = None

    @property
    def path(self) -> str:
        return f"{self.owner}/{self.name}"

    @classmethod
    def parse(cls, committable: Committable) -> StagedPiece:
        """Raises CorruptCheckpointError for whatever no writer of a ledger sink has made."""
        handle = committable.handle
        try:
            root, owner, name = (_text(handle[key]) for key in ("root", "owner", "piece"))
            match = _PIECE.fullmatch(name)
            if match is None or not OWNER.fullmatch(owner):
                raise ValueError(f"{owner!a} and {name!a} name no staged piece")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                f"a handle was not made by a ledger sink ({error}): {handle!a:.500}"
            ) from error
        target = Identity.from_plain(handle.get("target"))
        generation = int(match["generation"])
        return cls(committable.checkpoint_id, root, owner, name, generation, target)


class LedgerOutput(Protocol):
    """What a handle of a sink with a ledger stands for: output of `owner`, by a writer of `generation`."""

    @property
    def checkpoint_id(self) -> int: ...
    @property
    def owner(self) -> str: ...
    @property
    def generation(self) -> int: ...


Output = TypeVar("Output", bound=LedgerOutput)


class FencedCommitter(SinkCommitter, Generic[Output]):
    """Commits by a ledger for one generation, and refuses to once a later one has begun.

    Output that a commit publishes is newer than the ledger; a subclass says how handles are read and how
    output is published.
    """

    def __init__(
        self,
        connect: Callable[[], LedgerConnection],
        context: CommitterContext,
        accept: Collection[str] = (),
    ) -> None:
        self._connect = connect
        self._operator = context.operator
        self._owner = context.identity.name
        self._generation = context.generation
        self._accept = accept
        self._committed = context.committed
        """The newest checkpoint that the ledger is known to have known as committed."""
        self._connection: LedgerConnection | None = None
        self._begin()

    @abstractmethod
    def _parse(self, committable: Committable) -> Output:
        """Raises CorruptCheckpointError for whatever no writer of the sink has made."""

    @abstractmethod
    def _publish(
        self, transaction: LedgerTransaction, outputs: Sequence[Output], entry: LedgerEntry
    ) -> None:
        """Make the output, which has one owner, visible, and record the entry."""

    def commit(self, committables: Sequence[Committable]) -> None:
        outputs = [self._parse(one) for one in committables]
        with self._transaction() as transaction:
            found = transaction.entry(self._owner)
            own = self._checked(found)
            if own != found:
                transaction.record(self._owner, own)
            committed = own.checkpoint_id
            owners = {output.owner for output in outputs}
            for owner in sorted(owners, key=lambda one: (one != self._owner, one)):
                theirs = [output for output in outputs if output.owner == owner]
                # A job that goes on from another's checkpoint commits in its place, and fences nobody.
                known = own if owner == self._owner else transaction.entry(owner)
                self._write(transaction, known or LedgerEntry(), theirs)
                if owner == self._owner:
                    committed = max(committed, *(output.checkpoint_id for output in theirs))
        self._committed = max(self._committed, committed)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _begin(self) -> None:
        """From here on, whoever commits for an earlier generation is refused."""
        with self._transaction() as transaction:
            known = transaction.entry(self._owner) or LedgerEntry()
            if known.generation > self._generation:
                raise SupersededError
            kept = self._brought_forward(known) if self._is_behind(known) else known
            entry = LedgerEntry(kept.checkpoint_id, self._generation, kept.written_by)
            if entry != known:
                transaction.record(self._owner, entry)
        self._committed = max(self._committed, entry.checkpoint_id)

    def _checked(self, entry: LedgerEntry | None) -> LedgerEntry:
        """The entry, if it knows at least what it knew before: else the system went back."""
        known = entry or LedgerEntry()
        if known.generation > self._generation:
            raise SupersededError
        if not self._is_behind(known) and known.generation == self._generation:
            return known
        return self._brought_forward(known)

    def _is_behind(self, known: LedgerEntry) -> bool:
        return known.checkpoint_id < self._committed

    def _brought_forward(self, known: LedgerEntry) -> LedgerEntry:
        """The entry with what it has lost, if that is accepted. Raises SinkDataError otherwise."""
        if self._committed:
            kept = f"checkpoint {self._committed}, whose output was committed"
        else:
            kept = f"its entry of generation {self._generation}"
        if known == LedgerEntry():
            found = f"the ledger knows nothing of {self._owner}"
        else:
            newest, began = known.checkpoint_id, known.generation
            found = f"the ledger knows checkpoint {newest} as the newest, of generation {began}"
        found += ": rows and ledger have gone back together, or the sink writes to another system"
        way_on = "the output in between stays missing, and the next checkpoint is committed"
        behind(self._operator, kept, found, way_on, self._accept, SinkDataError)
        written_by = max(known.written_by, self._generation - 1)
        return LedgerEntry(self._committed, self._generation, written_by)

    def _write(
        self, transaction: LedgerTransaction, known: LedgerEntry, outputs: Sequence[Output]
    ) -> None:
        done = [output for output in outputs if output.checkpoint_id <= known.checkpoint_id]
        if later := [output for output in done if output.generation > known.written_by]:
            raise JobFailedError(
                f"{self._operator}: checkpoint {later[0].checkpoint_id} is new, but the ledger knows "
                f"{known.checkpoint_id} of {later[0].owner}: part of the checkpoint storage was deleted or "
                "set back. Start the job with a storage of its own"
            )
        new = [output for output in outputs if output.checkpoint_id > known.checkpoint_id]
        if not new:
            return
        self._check_targets(new)
        newest = max(output.checkpoint_id for output in new)
        written_by = max(known.written_by, *(output.generation for output in new))
        self._publish(transaction, new, LedgerEntry(newest, known.generation, written_by))

    def _check_targets(self, outputs: Sequence[Output]) -> None:
        """Raise SinkDataError for output that was written for another table or topic."""

    @contextmanager
    def _transaction(self) -> Iterator[LedgerTransaction]:
        """After an error the connection is given up: nobody knows what state it is in."""
        if self._connection is None:
            self._connection = self._connect()
        try:
            with self._connection.transaction() as transaction:
                yield transaction
        except BaseException:
            self.close()
            raise


class LedgerCommitter(FencedCommitter[StagedPiece]):
    """Commits staged pieces: what is written and the entry of the ledger show together."""

    def __init__(
        self,
        connect: Callable[[], LedgerConnection],
        context: CommitterContext,
        accept: Collection[str] = (),
        target: Callable[[], Identity | None] = lambda: None,
    ) -> None:
        self._staging = _staging_of(context)
        self._target = target
        super().__init__(connect, context, accept)

    def commit(self, committables: Sequence[Committable]) -> None:
        super().commit(committables)
        pieces = map(StagedPiece.parse, committables)
        self._remove([piece.path for piece in pieces if piece.root == self._staging.root])

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        keep = {StagedPiece.parse(Committable(0, handle)).path for handle in committed}
        known = self._staging.list(self._owner)
        self._remove([path for path in known if path not in keep and self._is_of_earlier(path)])

    def _parse(self, committable: Committable) -> StagedPiece:
        piece = StagedPiece.parse(committable)
        self._staging_at(piece.root)
        return piece

    def _publish(
        self, transaction: LedgerTransaction, outputs: Sequence[StagedPiece], entry: LedgerEntry
    ) -> None:
        for piece in outputs:
            content = self._content(piece, transaction)
            if content is not None:
                transaction.write(content)
        transaction.record(outputs[0].owner, entry)

    def _content(self, piece: StagedPiece, transaction: LedgerTransaction) -> bytes | None:
        """What was staged; None if it is gone, and that is accepted. Raises SinkDataError otherwise.

        Pieces are removed once they are committed: one that is gone was in a ledger that has gone back.
        """
        staging = self._staging_at(piece.root)
        try:
            return staging.read(piece.path)
        except StorageError:
            if piece.path in staging.list(piece.owner):
                raise
        known = transaction.entry(piece.owner) or LedgerEntry()
        behind(
            self._operator,
            f"checkpoint {piece.checkpoint_id}, whose output is not staged any more, as after its commit",
            f"the ledger knows checkpoint {known.checkpoint_id} as the newest of {piece.owner}",
            "that output stays missing, and the next checkpoint is committed",
            self._accept,
            SinkDataError,
        )
        return None

    def _check_targets(self, outputs: Sequence[StagedPiece]) -> None:
        kept = {str(piece.target): piece.target for piece in outputs if piece.target is not None}
        if kept and (found := self._target()) is not None:
            for target in kept.values():
                same(self._operator, target, found, self._accept, SinkDataError)

    def _staging_at(self, root: str) -> Staging:
        if root == self._staging.root:
            return self._staging
        staging = self._staging.at(root)
        if staging.root != root:
            raise CorruptCheckpointError(
                "a handle names a storage in a way that no sink does", root
            )
        return staging

    def _is_of_earlier(self, path: str) -> bool:
        match = _PIECE.fullmatch(path.rpartition("/")[2])
        return match is not None and int(match["generation"]) < self._generation

    def _remove(self, paths: Sequence[str]) -> None:
        """They do no harm where they stay: the next start removes them."""
        with suppress(StorageError):
            self._staging.delete_all(paths)


@dataclass(slots=True)
class _OpenPiece:
    name: str
    stream: io.BytesIO
    encoder: Encoder
    rows: int = 0


@dataclass(slots=True)
class _LedgerWriter(SinkWriter):
    """Stores large pieces at once, and the last one of each checkpoint outside of the record path."""

    staging: Staging
    context: SinkContext
    encoding: Callable[[BinaryIO], Encoder]
    piece_bytes: int
    target: Identity | None = None
    _open: _OpenPiece | None = None
    _stored: list[Handle] = field(default_factory=list)
    _named: int = 0
    _unique: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        if self._open is None:
            stream = io.BytesIO()
            self._open = _OpenPiece(self._next_name(), stream, self.encoding(stream))
        piece = self._open
        piece.encoder.write(batch)
        piece.rows += len(batch)
        if piece.stream.tell() >= self.piece_bytes:
            self._open = None
            self._store(piece)
            self._stored.append(self._handle(piece))

    def prepare(self, checkpoint_id: int) -> Prepared:
        handles, self._stored = self._stored, []
        piece, self._open = self._open, None
        if piece is None:
            return Prepared(handles)
        return Prepared([*handles, self._handle(piece)], lambda: self._store(piece))

    def close(self) -> None:
        if self._open is not None:
            self._open.encoder.abandon()

    def _next_name(self) -> str:
        context, number = self.context, self._named
        self._named += 1
        return f"{context.subtask:05d}-{context.generation:04d}-{number:04d}-{self._unique}"

    def _handle(self, piece: _OpenPiece) -> Handle:
        owner, root = self.context.identity.name, self.staging.root
        handle = {"root": root, "owner": owner, "piece": piece.name, "rows": piece.rows}
        return handle if self.target is None else {**handle, "target": self.target.to_plain()}

    def _store(self, piece: _OpenPiece) -> None:
        piece.encoder.finish()
        self.staging.write(f"{self.context.identity.name}/{piece.name}", piece.stream.getvalue())


def _staging_of(context: SinkContext | CommitterContext) -> Staging:
    """Where output of the sink waits. Raises ConfigurationError where nothing can: without checkpoints."""
    if context.staging is None:
        raise ConfigurationError(
            f"{context.operator} keeps output beside the checkpoints of the job until its commit, and this "
            "job takes none: give `execute` checkpointing=Checkpointing(...)"
        )
    return context.staging


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!a} is no text")
    return value
