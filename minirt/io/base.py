"""The interfaces of sources and sinks.

A source is a set of replayable *splits*. Reading a split twice from the same offset must give the
same records in the same order: everything that minirt promises rests on that.

A sink commits in two phases. Each subtask's writer hands its pending output over inside the
snapshot (`prepare`); once the checkpoint is complete the coordinator calls `Sink.commit` with exactly
the handles of that checkpoint, and again after a restore: committing twice must change nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
        """The next batch (some thousand records), an empty one if nothing is there yet, None at the end."""

    def take_bad_records(self) -> list[BadRecord]:
        """What did not parse since the last call. Only asked where `on_error` is not "fail"."""
        return []

    def close(self) -> None:
        """Release files and connections."""


class Source(ABC):
    """Where records come from. Instances are pickled into every worker: hold no open resources."""

    bounded: bool = True
    """Whether the source ends by itself."""

    interleave: bool = False
    """Whether a subtask reads its splits side by side, by event time, instead of one after another."""

    side_errors: bool = False
    """Whether records that do not parse go to the side output `errors`."""

    @abstractmethod
    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        """All splits, in reading order. Called once, when the job starts without a checkpoint."""

    @abstractmethod
    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        """A reader that goes on at `offset`. Raises SourceDataError if that cannot be done."""

    def schema(self) -> pa.Schema | None:
        """The columns, if they are known before the job runs; lets unknown columns be refused early."""
        return None

    def validate(self) -> None:
        """Raise ConfigurationError if this source cannot work. Called when the job is built."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a writer may know. `operator` names the sink in error messages."""

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

    def close(self) -> None:
        """Release resources. Output that was never prepared is dropped."""


class Sink(ABC):
    """Where records go. Instances are pickled into every worker: hold no open resources."""

    @abstractmethod
    def open_writer(self, context: SinkContext) -> SinkWriter: ...

    def commit(self, handles: Sequence[Handle]) -> None:
        """Make the output behind `handles` visible, all in order; idempotent. Runs in the coordinator."""

    def discard_uncommitted(
        self,
        committed: Sequence[Handle],
        operator: str = "",
        before_generation: int | None = None,
    ) -> None:
        """Remove pending output that no checkpoint refers to.

        Called after a start or restore has committed `committed`, before any writer opens.
        `operator` is what the writers get as `SinkContext.operator`: a target may hold the pending
        output of other operators and jobs too, so without a name a sink cleans up only where
        `committed` proves that the place is its own. Output that writers of `before_generation` or
        later wrote (`SinkContext.generation`) stays: a coordinator may call this long after it was
        replaced without noticing, while its successor's writers are at work. None removes all.
        """

    def validate(self) -> None:
        """Raise ConfigurationError if this sink cannot work. Called when the job is built."""
