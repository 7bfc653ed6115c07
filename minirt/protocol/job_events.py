"""What happens to a job (events) and what its coordinator orders (commands).

Times are seconds of a monotonic clock, as in `minirt.protocol.job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from minirt.errors import CorruptCheckpointError
from minirt.protocol.drift import Progress
from minirt.protocol.giving_up import AnnounceGivenUp, GivenUpOutput
from minirt.protocol.ids import SubtaskId
from minirt.protocol.lines import LocalCut
from minirt.protocol.manifest import (
    InFlightRef,
    Manifest,
    ManifestKey,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
)
from minirt.protocol.reasons import GenerationFailure, SavepointFailure
from minirt.protocol.reports import CheckpointReport
from minirt.protocol.restart_commands import RestartCommand, RestartEvent
from minirt.protocol.savepoint_requests import Savepoint, SavepointRequest
from minirt.protocol.slots import AwaitSlots, SlotsAwaited, SlotsCame, SlotsChanged
from minirt.protocol.source_offsets import (
    SourceOffsets,
    SourcesNotTold,
    SourcesTold,
    TellSources,
)
from minirt.protocol.starting_point import FROM_THE_BEGINNING, StartingPoint
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.protocol.topology import Topology
from minirt.protocol.trace import CheckpointTrace, SubtaskTrace


class TimerKind(Enum):
    """What a timer of the coordinator is for; its `id` says for which one."""

    TRIGGER = "take the next checkpoint"
    EXPIRE = "give a checkpoint up"
    CONNECT = "give up waiting for workers"
    START = "give up waiting for subtasks to start"
    LIVENESS = "look for silent workers"
    RESTART = "restart after the delay"
    COMMIT = "try a commit again"
    TELL = "tell sources again how far they are stored"
    BRING_BACK = "bring a worker back after the delay"
    BACK = "give up waiting for a worker to come back"


@dataclass(frozen=True, slots=True)
class Timer:
    kind: TimerKind
    id: int


# Events


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job is to start."""


@dataclass(frozen=True, slots=True)
class GenerationPrepared:
    """A generation is claimed, its restore point chosen, and that point's sink handles committed.

    `drains`: what is restored ends the job by a drain that is not over. `start` is for its workers.
    `topology` is that of the job, if the preparation was told at which parallelism. `given_up` is the
    output that the user wanted dropped instead of committed.
    """

    generation: int
    restored: Manifest | None
    next_checkpoint_id: int
    drains: bool = False
    start: StartingPoint = FROM_THE_BEGINNING
    topology: Topology | None = None
    given_up: GivenUpOutput | None = None


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    """A generation cannot start or go on; `fatal` if another attempt would fail as well."""

    error: Exception
    fatal: bool


@dataclass(frozen=True, slots=True)
class WorkersConnected:
    """All workers are up and know where the others listen."""

    generation: int


@dataclass(frozen=True, slots=True)
class SubtaskStarted:
    """State is restored and channels are open."""

    generation: int
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class SubtaskDrained:
    """All input has ended and was processed; only checkpoints are still to come."""

    generation: int
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class SourceProgressed:
    """A subtask of a source in a drift group is further than it has said, or has turned idle or active."""

    generation: int
    subtask: SubtaskId
    progress: Progress


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker gave a sign of life."""

    generation: int
    worker: int


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker died, or a subtask raised. `worker` is given if somebody has seen that its process ended."""

    generation: int
    error: Exception
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotAcknowledged:
    """A subtask's part of a checkpoint is durable, or a `local` snapshot of it.

    `of_line`: it is what a line needs besides the local snapshot of the subtask.
    """

    generation: int
    checkpoint_id: int
    subtask: SubtaskId
    snapshot: SnapshotRef | None
    stats: SubtaskStats
    handles: tuple[SinkHandles, ...] = ()
    in_flight: InFlightRef | None = None
    watermarks: SubtaskWatermarks | None = None
    offsets: SourceOffsets | None = None
    trace: SubtaskTrace | None = None
    local: LocalCut | None = None
    of_line: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotDeclined:
    """A subtask could not store its part; the sink output it holds is durable all the same.

    `error` is what was raised, in words; None if the subtask took the checkpoint for given up.
    """

    generation: int
    checkpoint_id: int
    subtask: SubtaskId
    error: str | None
    handles: tuple[SinkHandles, ...] = ()
    local: LocalCut | None = None


@dataclass(frozen=True, slots=True)
class ManifestStored:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ManifestRefused:
    """The manifest could not be written; with a SupersededError it may exist, but does not count."""

    checkpoint_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class HandlesCommitted:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    checkpoint_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class SavepointRequested:
    request: SavepointRequest


@dataclass(frozen=True, slots=True)
class SavepointPublished:
    """A savepoint is where it was wanted; `path` says how to restore it."""

    checkpoint_id: int
    path: str


@dataclass(frozen=True, slots=True)
class SavepointNotPublished:
    """The checkpoint is complete, but could not be copied to where the savepoint was wanted.

    `kept_at` is where the checkpoint itself is, if no other coordinator has taken over.
    """

    checkpoint_id: int
    error: Exception
    kept_at: str | None = None


@dataclass(frozen=True, slots=True)
class TimerFired:
    timer: Timer


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user wants the job to end now; `reason` is for its history."""

    reason: str | None = None


JobEvent = (
    Submitted
    | GenerationPrepared
    | GenerationFailed
    | WorkersConnected
    | SubtaskStarted
    | SubtaskDrained
    | SourceProgressed
    | WorkerSeen
    | WorkerFailed
    | RestartEvent
    | SlotsCame
    | SlotsAwaited
    | SlotsChanged
    | SnapshotAcknowledged
    | SnapshotDeclined
    | ManifestStored
    | ManifestRefused
    | HandlesCommitted
    | CommitFailed
    | SourcesTold
    | SourcesNotTold
    | SavepointRequested
    | SavepointPublished
    | SavepointNotPublished
    | TimerFired
    | CancelRequested
)


# Commands


@dataclass(frozen=True, slots=True)
class PrepareGeneration:
    """Claim the next generation, choose where to restore from, commit that point's handles.

    `damaged` says what is wrong with checkpoints. The job has a `parallelism` that is given from now on.
    """

    damaged: Mapping[ManifestKey, CorruptCheckpointError] = field(default_factory=dict)
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Deploy:
    """Start workers for all subtasks; `start` is where their state comes from."""

    generation: int
    start: StartingPoint = FROM_THE_BEGINNING


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """End the workers of a generation; `kill` without letting them close in an orderly way."""

    generation: int
    kill: bool


@dataclass(frozen=True, slots=True)
class StoreManifest:
    """Complete a checkpoint: create its manifest, unless a newer generation exists."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CommitHandles:
    """Have the sinks publish what a complete checkpoint holds."""

    checkpoint_id: int
    handles: tuple[SinkHandles, ...]


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Delete what retention no longer keeps, but no file of a `needed` checkpoint.

    The `unneeded` files go as well, unless a manifest refers to them.
    """

    needed: frozenset[ManifestKey] = frozenset()
    unneeded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PublishSavepoint:
    """Copy a checkpoint whose output is committed to `path`; None leaves it where it is."""

    manifest: Manifest
    path: str | None


@dataclass(frozen=True, slots=True)
class AnswerSavepoint:
    """Tell the user who made a request the savepoint, or why there is none."""

    request_id: int
    savepoint: Savepoint | None = None
    failure: SavepointFailure | None = None


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Keep what became of a checkpoint where it survives the coordinator."""

    report: CheckpointReport


@dataclass(frozen=True, slots=True)
class StoreTrace:
    """Keep what a checkpoint did beside it, for as long as it is kept."""

    trace: CheckpointTrace


@dataclass(frozen=True, slots=True)
class SetTimer:
    timer: Timer
    at: float


class JobStatus(Enum):
    """Where a job is in its life: PREPARING looks for the checkpoint to start from, DEPLOYING starts
    workers and restores state, WAITING lets the delay of the restart strategy pass; STOPPED is stopped or
    drained with a savepoint, CANCELLED was ended at once."""

    CREATED = "created"
    PREPARING = "preparing"
    DEPLOYING = "deploying"
    RUNNING = "running"
    WAITING = "waiting to restart"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobStatus.FINISHED, JobStatus.STOPPED, JobStatus.FAILED, JobStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class EndJob:
    """Nothing is left to do.

    `failure` says why a job failed, `savepoint` where a stopped one may go on, and `ended_because`
    why it was told to end, if it was and that is known.
    """

    status: JobStatus
    failure: GenerationFailure | None = None
    savepoint: Savepoint | None = None
    ended_because: str | None = None

    @property
    def error(self) -> Exception | None:
        """What users catch, and observers hear of."""
        return None if self.failure is None else self.failure.error


JobCommand = (
    AwaitSlots
    | PrepareGeneration
    | Deploy
    | StopWorkers
    | SubtaskCommand
    | StoreManifest
    | CommitHandles
    | TellSources
    | CleanUp
    | PublishSavepoint
    | AnswerSavepoint
    | RecordHistory
    | StoreTrace
    | SetTimer
    | RestartCommand
    | AnnounceGivenUp
    | EndJob
)
