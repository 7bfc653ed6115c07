"""What happens to a job (events) and what its coordinator orders (commands). Times are unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from minirt.graph.execution import SubtaskId
from minirt.protocol.barriers import Barrier
from minirt.protocol.manifest import InFlightRef, Manifest, SinkHandles, SnapshotRef, SubtaskStats
from minirt.protocol.stored_watermarks import SubtaskWatermarks


class TimerKind(Enum):
    """What a timer of the coordinator is for; its `id` says for which one."""

    TRIGGER = "take the next checkpoint"
    EXPIRE = "give a checkpoint up"
    CONNECT = "give up waiting for workers"
    START = "give up waiting for subtasks to start"
    LIVENESS = "look for silent workers"
    RESTART = "restart after the delay"
    COMMIT = "try a commit again"


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
    """A generation is claimed, its restore point chosen, and that point's sink handles committed."""

    generation: int
    restored: Manifest | None
    next_checkpoint_id: int


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    """Storage or the restore point stood in the way; `fatal` if trying again cannot help."""

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
class WorkerSeen:
    """A worker gave a sign of life."""

    generation: int
    worker: int


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker died, or one of its subtasks raised."""

    generation: int
    error: Exception


@dataclass(frozen=True, slots=True)
class SnapshotAcknowledged:
    """A subtask's part of a checkpoint is durable."""

    generation: int
    checkpoint_id: int
    subtask: SubtaskId
    snapshot: SnapshotRef | None
    stats: SubtaskStats
    handles: tuple[SinkHandles, ...] = ()
    in_flight: InFlightRef | None = None
    watermarks: SubtaskWatermarks | None = None


@dataclass(frozen=True, slots=True)
class SnapshotDeclined:
    """A subtask could not store its part; the sink output it holds is durable all the same."""

    generation: int
    checkpoint_id: int
    subtask: SubtaskId
    reason: str
    handles: tuple[SinkHandles, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestStored:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ManifestRefused:
    """The manifest could not be written; `superseded` if a newer generation has taken over."""

    checkpoint_id: int
    reason: str
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class HandlesCommitted:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    checkpoint_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class TimerFired:
    timer: Timer


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user wants the job to end now."""


JobEvent = (
    Submitted
    | GenerationPrepared
    | GenerationFailed
    | WorkersConnected
    | SubtaskStarted
    | SubtaskDrained
    | WorkerSeen
    | WorkerFailed
    | SnapshotAcknowledged
    | SnapshotDeclined
    | ManifestStored
    | ManifestRefused
    | HandlesCommitted
    | CommitFailed
    | TimerFired
    | CancelRequested
)


# Commands


@dataclass(frozen=True, slots=True)
class PrepareGeneration:
    """Claim the next generation, choose where to restore from, commit that point's handles."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """Start workers for all subtasks; `restored` is where their state comes from."""

    generation: int
    restored: Manifest | None


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """End the workers of a generation; `kill` without letting them close in an orderly way."""

    generation: int
    kill: bool


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Hand the barrier to every source subtask."""

    generation: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Tell every subtask that the checkpoint is given up."""

    generation: int
    checkpoint_id: int


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
    """Delete what retention no longer keeps."""


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Keep what became of a checkpoint where it survives the coordinator."""

    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SetTimer:
    timer: Timer
    at: float


@dataclass(frozen=True, slots=True)
class AnnounceRestart:
    """Tell whoever watches that the job restarts in `delay_s` seconds because of `error`."""

    error: Exception
    delay_s: float


class JobStatus(Enum):
    """Where a job is in its life."""

    CREATED = "created"
    PREPARING = "preparing"
    DEPLOYING = "deploying"
    RUNNING = "running"
    WAITING = "waiting to restart"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class EndJob:
    """Nothing is left to do; `error` says why a job failed."""

    status: JobStatus
    error: Exception | None = None


JobCommand = (
    PrepareGeneration
    | Deploy
    | StopWorkers
    | TriggerCheckpoint
    | AbortCheckpoint
    | StoreManifest
    | CommitHandles
    | CleanUp
    | RecordHistory
    | SetTimer
    | AnnounceRestart
    | EndJob
)
