"""The interfaces of sources and sinks.

A source is a set of replayable *splits*. Reading a split twice from the same offset must give the
same records in the same order: everything that minirt promises rests on that.

A sink commits in two phases. Each subtask's writer hands its pending output over inside the
snapshot (`prepare`); once the checkpoint is complete the coordinator calls `Sink.commit` with exactly
the handles of that checkpoint, and again after a restore: committing twice must change nothing.

Many jobs may write to one place. Whatever a sink keeps there until its commit belongs to a `SinkIdentity`,
and nobody else touches it. A handle tells `commit` all that it needs, including the owner of the output and
its checkpoint where that matters: a job that goes on from the savepoint of another job commits the handles
of that other job.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, Literal, Protocol

import pyarrow as pa

from minirt.data.batch import Batch
from minirt.generics import T_co
from minirt.io.remembered import THERE, Identity, kept_identity

Offset = Any
"""A position in a split: any value that msgpack carries. None is the beginning."""

OnError = Literal["fail", "skip", "side_output"]
"""What becomes of a record that does not parse: it fails the job, is left out, or goes to `errors`."""

Handle = dict[str, Any]
"""Pending output of one subtask, as `commit` needs it: small, only values that msgpack carries.

A handle may say in `rows` or `records` how many it stands for, which messages about lost output tell."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that one subtask reads from front to end.

    `id` is unique within the source and stable over restarts; `info` is what `open_split` needs.
    """

    id: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A piece of input that did not parse; the side output `errors` has it as a dict of these fields.

    `raw` holds the bytes of input that is no text; it is in the dict of such input only.
    """

    location: str
    text: str
    error: str
    raw: bytes | None = None

    @classmethod
    def of(cls, location: str, data: bytes, error: str, *, binary: bool = False) -> BadRecord:
        """One of these bytes, which are text in UTF-8 unless `binary` or a look at them says else."""
        text = data.decode(errors="replace")
        is_text = not binary and text.encode() == data
        return cls(location, text, error, None if is_text else data)

    def to_plain(self) -> dict[str, Any]:
        plain = {"location": self.location, "text": self.text, "error": self.error}
        return plain if self.raw is None else {**plain, "raw": self.raw}


class SplitReader(ABC):
    """Reads one split. Used by one thread; closed exactly once."""

    offset: Offset
    """The position after everything that `read` has returned so far."""

    skipped: int = 0
    """How many pieces of input did not parse and were left out since the reader was opened."""

    @abstractmethod
    def read(self) -> list[Any] | pa.RecordBatch | None:
        """The next batch (some thousand records), an empty one if nothing is there yet, None at the end.

        Records, and the list of them, are handed over: they are new, no two share what can be changed, and
        the reader neither keeps nor changes them.
        """

    def verify(self) -> None:
        """Make sure that all that was read came from what the split is of, before a checkpoint holds it.

        Called ahead of each snapshot. Raises SourceChangedError if the other side was exchanged meanwhile.
        """

    def take_bad_records(self) -> list[BadRecord]:
        """The pieces that did not parse since the last call. Only called if `on_error` is not "fail"."""
        return []

    def locate(self, places: Sequence[int]) -> Sequence[tuple[str, bytes] | None]:
        """Where the records at these places of the last batch are in the input, in words, and their bytes.

        None for those of which the reader does not know it. Called for records without a usable event time.
        """
        return [None] * len(places)

    def take_new_splits(self) -> Sequence[Split]:
        """Splits that came up since the last call, and that nobody has planned: read from now on as others.

        Called whenever `offset` is taken over, and stored together with it. So the offset must say which
        ones were handed over: a reader that goes on at it finds only those that came up later.
        """
        return ()

    def close(self) -> None:
        """Release files and connections."""


class Source(ABC, Generic[T_co]):
    """Where records come from, of type `T_co`.

    Instances are pickled into every worker: hold no open resources.
    """

    bounded: bool = True
    """Whether the source ends by itself."""

    interleave: bool | None = None
    """Whether a subtask reads its splits side by side instead of one after another.

    None, the default, means side by side if the source is unbounded: a split that never ends would keep
    those behind it from being read.
    """

    in_one_process: bool = False
    """Whether what it reads is in the memory of this process, where no other one finds it."""

    side_errors: bool = False
    """Whether records that do not parse, or have no usable event time, go to the side output `errors`."""

    on_error: OnError | None = None
    """What becomes of records that do not parse, or have no usable event time; None if the source has no
    such option. Such records then fail the job."""

    in_arrays: bool = False
    """Whether its readers make arrays of Arrow from Python objects. Arrow imports pandas for that: once for
    all workers if this says so, else in each of them in the middle of its first records."""

    accept: Collection[str] = ()
    """Which changes of the other side it accepts: "other", "behind", see `minirt.io.remembered`."""

    accept_other: str = THERE
    """What it does where `accept` has "other", for messages."""

    @abstractmethod
    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        """All splits, in reading order. Called once, when the job starts without a checkpoint."""

    @abstractmethod
    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        """A reader that goes on at `offset`. Raises SourceDataError if that cannot be done."""

    @property
    def reads_side_by_side(self) -> bool:
        """Whether splits are read side by side: as `interleave` says, or as holds by default."""
        return not self.bounded if self.interleave is None else self.interleave

    def identity(self) -> Identity | None:
        """Tell the topic, table or folder that this source reads from all others.

        It is stored with each split, in `info["identity"]`, and compared at each restore: a job is refused
        that would go on in another one. None, the default, compares nothing. An id that cannot be had at
        the moment is left out. `open_split` compares how far the other side is.
        """
        return None

    def remembered(self, split: Split) -> Identity | None:
        """Give the identity that a split of a checkpoint holds; None if it holds none."""
        return kept_identity(split)

    def moved(self, split: Split, offset: Offset, kept: Identity) -> tuple[Split, Offset]:
        """Give a split and an offset as they are in another place: of `kept`, but to be read here.

        Called where `accept` has "other". Without an override they stay as they are.
        """
        return split, offset

    def committed(self, offsets: Mapping[str, Offset]) -> None:
        """Everything before these offsets, by the ids of splits, is part of a stored checkpoint.

        Called in the coordinator, in the thread that commits, after a checkpoint is complete and never
        before: to tell monitors how far the job is, or to let the system free what is behind. It should
        take no longer than a few seconds. What it raises is logged, and it is called again, with newer
        offsets if there are any; a JobFailedError ends the job. A job that has restored an older checkpoint
        comes with older offsets than before: whoever frees what is behind takes that way from it.
        """

    @property
    def wants_committed(self) -> bool:
        """Whether `committed` is to be called at all."""
        return type(self).committed is not Source.committed

    def schema(self) -> pa.Schema | None:
        """The columns, if they are known before the job runs; lets unknown columns be refused early."""
        return None

    def validate(self) -> None:
        """Raise ConfigurationError if this source cannot work. Called when the job is built."""


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """The owner of pending output. No two sinks have the same identity, whichever jobs they are part of.

    `job` is the same in each start of a job, as long as its storage of checkpoints stays where it is. A
    job without checkpointing has another one in each run, since nothing goes on from an earlier run.
    `uid` is that of the sink.
    """

    job: str
    uid: str

    @property
    def name(self) -> str:
        """The identity in letters, digits, dots and hyphens: for files, tables and transactions."""
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", self.uid)[:40].strip("-.")
        digest = blake2b(f"{self.job}\0{self.uid}".encode(errors="surrogatepass"), digest_size=8)
        return f"{readable}-{digest.hexdigest()}"


class Staging(Protocol):
    """Durable objects beside the checkpoints of a job, for output that waits for its commit.

    Paths are relative. Every failure is a StorageError. Usable from several threads.
    """

    @property
    def root(self) -> str:
        """What the paths are relative to, as an absolute URL or path."""

    def write(self, path: str, data: bytes | Iterable[bytes]) -> None:
        """Store an object; durable on return, never half visible."""

    def read(self, path: str) -> bytes:
        """The whole object."""

    def delete(self, path: str) -> None:
        """Remove an object; one that is absent is fine."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are absent are fine. After an error some may still be there."""

    def list(self, prefix: str = "") -> Sequence[str]:
        """The paths of all objects in the folder `prefix` and below."""

    def at(self, url: str) -> Staging:
        """The objects below another root, reached with the same options."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The facts that a writer may know. `operator` names the sink in error messages, and nowhere else.

    `staging` is in the storage of the job's checkpoints; None if the job takes none.
    """

    identity: SinkIdentity
    operator: str
    subtask: int
    parallelism: int
    generation: int
    staging: Staging | None = None


@dataclass(frozen=True, slots=True)
class Committable:
    """A handle, and the checkpoint that it was prepared for.

    Ids of checkpoints grow over all starts of a job. A commit may also hold handles of older checkpoints,
    which failed. Once it has succeeded, handles of these checkpoints come again only as repetitions.
    """

    checkpoint_id: int
    handle: Handle


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """Who commits: generations of one identity grow, and a higher one has replaced all lower ones.

    `operator` and `staging` are as in `SinkContext`. `committed` is the newest checkpoint whose output of
    this sink is known to be committed, 0 if none is: a ledger that knows only older ones has gone back.
    """

    identity: SinkIdentity
    operator: str
    generation: int
    staging: Staging | None = None
    committed: int = 0


@dataclass(slots=True)
class Prepared:
    """Output that waits for its commit.

    `finish` makes it durable; it may be slow, runs outside the record path, at most once, and always
    before the snapshot that holds `handles` is acknowledged.
    """

    handles: list[Handle] = field(default_factory=list)
    finish: Callable[[], None] | None = None


class SinkWriter(ABC):
    """Writes the records of one subtask. Used by one thread, but for `Prepared.finish`."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the records; what is written must stay invisible to readers until committed.

        A SinkDataError ends the job: it would meet the record again. After any other error it restarts.
        """

    def prepare(self, checkpoint_id: int) -> Prepared:
        """Hand over everything written since the last call and start afresh.

        The id is never given to this subtask again, not in later generations of the job either.
        """
        return Prepared()

    def release(self) -> None:
        """Let the next `prepare` hand over also what this writer has held back over earlier ones.

        All input has ended, or a savepoint is taken: others may go on from it, and never see this writer.
        """

    def close(self) -> None:
        """Release resources. Output that was never prepared is dropped."""


class SinkCommitter(ABC):
    """Commits for one generation of a job: in the coordinator, in one thread; closed exactly once."""

    @abstractmethod
    def commit(self, committables: Sequence[Committable]) -> None:
        """Make visible what a complete checkpoint holds, all in order; idempotent.

        A coordinator that was replaced and has not noticed may repeat a commit when its successor has made
        many more. An error is logged, and the commit is repeated, perhaps with more. A
        ConfigurationError, a SinkDataError or a JobFailedError ends the job: repeating it would not help.
        """

    def commit_restored(self, committables: Sequence[Committable]) -> None:
        """As `commit`, for what a restored checkpoint holds."""
        self.commit(committables)

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        """Remove pending output that no checkpoint refers to, see `Sink.discard_uncommitted`."""

    def close(self) -> None:
        """Release connections."""


class Sink(ABC):
    """Where records go. Instances are pickled into every worker: hold no open resources.

    Most sinks say in `commit` how to commit. One that keeps a connection for it, or has to know who commits
    and for which checkpoint, overrides `open_committer` instead.
    """

    in_one_process: bool = False
    """Whether it writes into the memory of this process, where no other one finds it."""

    in_arrays: bool = False
    """Whether its writers make arrays of Arrow from Python objects. Arrow imports pandas for that: once for
    all workers if this says so, else in each of them in the middle of its first records."""

    opens_again: bool = False
    """Whether `open_writer` may be called again for a subtask in the same generation, once the process of
    the writer before is gone. What that one has prepared is committed, will be, or never will: the new one
    must not touch it."""

    @abstractmethod
    def open_writer(self, context: SinkContext) -> SinkWriter:
        """A writer for the records of one subtask, called in its worker when a generation begins."""

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        """What commits for a generation: opened at its start, before anything is committed.

        The place to fence coordinators of earlier generations. Raises SupersededError if a later one has
        begun.
        """
        return OwnCommitter(self, context)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Make the output behind `handles` visible, all in order; idempotent. Runs in the coordinator.

        It may be repeated at any time, also by a coordinator that was replaced: see `SinkCommitter`.
        """

    def commit_restored(self, handles: Sequence[Handle]) -> None:
        """As `commit`, for what a restored checkpoint holds: no writer of it is left.

        Called at each start and restart from a checkpoint. Only sinks whose writers hold output back over
        several checkpoints need something else than `commit`.
        """
        self.commit(handles)

    def discard_uncommitted(
        self, committed: Sequence[Handle], identity: SinkIdentity, before_generation: int
    ) -> None:
        """Remove pending output of this identity that no checkpoint refers to.

        Called after a start or restore has committed `committed`, before any writer opens. What belongs
        to other identities, or to nobody known, stays. So does output that writers of
        `before_generation` or later wrote (`SinkContext.generation`): a coordinator may call this long
        after it was replaced without noticing, while its successor's writers are at work.
        """

    def redirected(self, folder: str) -> Sink | None:
        """The same sink, writing below this local folder; None if it cannot.

        For runs on trial, whose output must not mix with that of the job: `minirt compare` makes them. A
        sink that writes nowhere else may return itself.
        """
        return None

    def on_fresh_start(self) -> None:
        """A job is about to start that goes on from no checkpoint: output of earlier runs stays.

        May warn, or raise ConfigurationError, where this would show records twice.
        """

    def validate(self) -> None:
        """Raise ConfigurationError if this sink cannot work. Called when the job is built."""


def commits_by_itself(sink: Sink) -> bool:
    """Tell whether the sink commits handle by handle and fences nobody: its committer passes them on."""
    opens = type(sink).open_committer
    return opens is Sink.open_committer or getattr(opens, "passes_on", False)


class OwnCommitter(SinkCommitter):
    """Asks the sink itself, which takes handles for all that it needs."""

    def __init__(self, sink: Sink, context: CommitterContext) -> None:
        self._sink = sink
        self._context = context

    def commit(self, committables: Sequence[Committable]) -> None:
        self._sink.commit([one.handle for one in committables])

    def commit_restored(self, committables: Sequence[Committable]) -> None:
        self._sink.commit_restored([one.handle for one in committables])

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        identity, generation = self._context.identity, self._context.generation
        self._sink.discard_uncommitted(committed, identity, generation)
