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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch

Offset = Any
"""A position in a split: any value that msgpack carries. None is the beginning."""

Handle = dict[str, Any]
"""Pending output of one subtask, as `commit` needs it: small, only values that msgpack carries."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that one subtask reads from front to end.

    `id` is unique within the source and stable over restarts; `info` is what `open_split` needs.
    """

    id: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A piece of input that did not parse; the side output `errors` has it as a dict of these fields."""

    location: str
    text: str
    error: str


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

    def take_bad_records(self) -> list[BadRecord]:
        """The pieces that did not parse since the last call. Only called if `on_error` is not "fail"."""
        return []

    def close(self) -> None:
        """Release files and connections."""


class Source(ABC):
    """Where records come from. Instances are pickled into every worker: hold no open resources."""

    bounded: bool = True
    """Whether the source ends by itself."""

    interleave: bool | None = None
    """Whether a subtask reads its splits side by side instead of one after another.

    None, the default, means side by side if the source is unbounded: a split that never ends would keep
    those behind it from being read.
    """

    side_errors: bool = False
    """Whether records that do not parse go to the side output `errors`."""

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


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The facts that a writer may know. `operator` names the sink in error messages, and nowhere else."""

    identity: SinkIdentity
    operator: str
    subtask: int
    parallelism: int
    generation: int


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
        """Take the records; what is written must stay invisible to readers until committed."""

    def prepare(self, checkpoint_id: int) -> Prepared:
        """Hand over everything written since the last call and start afresh."""
        return Prepared()

    def release(self) -> None:
        """Let the next `prepare` hand over also what this writer has held back over earlier ones.

        All input has ended, or a savepoint is taken: others may go on from it, and never see this writer.
        """

    def close(self) -> None:
        """Release resources. Output that was never prepared is dropped."""


class Sink(ABC):
    """Where records go. Instances are pickled into every worker: hold no open resources."""

    @abstractmethod
    def open_writer(self, context: SinkContext) -> SinkWriter: ...

    def commit(self, handles: Sequence[Handle]) -> None:
        """Make the output behind `handles` visible, all in order; idempotent. Runs in the coordinator."""

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
