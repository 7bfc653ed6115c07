"""Why checkpoints, generations and savepoints fail: values for programs, words for people.

Programs compare the `reason` of a failure and read its details. Nobody else puts a failure into words:
`str` of it does, here, and mypy refuses a reason that has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from minirt.errors import StorageError, SupersededError, WorkerLostError
from minirt.wording import named

_NAMES_MAX = 10
"""How many subtasks a message names."""


class CheckpointFailureReason(Enum):
    """Why a checkpoint did not complete."""

    DECLINED = "declined"
    """A subtask could not store its part."""
    GIVEN_UP = "given up"
    """A subtask dropped its part, since it took the checkpoint for given up."""
    PASSED_OVER = "passed over"
    """A subtask has come to a later checkpoint, and has never stored its part of this one."""
    EXPIRED = "expired"
    """Parts were missing when `Checkpointing.timeout` was over."""
    NOT_STORED = "not stored"
    """All parts were there, but the manifest could not be written."""
    GENERATION_FAILED = "generation failed"
    """The job failed while the checkpoint was taken."""
    CANCELLED = "cancelled"
    """The job was cancelled while the checkpoint was taken."""
    RECORDED = "recorded"
    """Read from a history on storage, which keeps the words only."""


@dataclass(frozen=True, slots=True)
class CheckpointFailure:
    """Why a checkpoint failed. `str` of it is the message for people."""

    reason: CheckpointFailureReason
    error: str = ""
    """What was raised, in words, by the subtask, the storage, or whatever made the generation fail."""
    missing: tuple[str, ...] = ()
    """The names of the subtasks whose part had not come, in the order of the job's graph."""
    subtask_count: int = 0
    """How many parts the checkpoint needed."""
    declined_by: str | None = None
    """The name of the subtask that declined, or passed over."""
    timeout_s: float = 0.0
    """After how many seconds it expired."""
    generation_failure: GenerationFailureReason | None = None
    """Why the generation failed that took the checkpoint."""

    def __str__(self) -> str:
        why = CheckpointFailureReason
        match self.reason:
            case why.DECLINED:
                return f"declined: {self.error}"
            case why.GIVEN_UP:
                return "declined: it was given up"
            case why.PASSED_OVER:
                return f"passed over: {self.declined_by} has come to a later one without it"
            case why.EXPIRED:
                return (
                    f"expired after {self.timeout_s:g} s with {len(self.missing)} of "
                    f"{self.subtask_count} subtasks missing: {_in_short(self.missing)}"
                )
            case why.NOT_STORED | why.GENERATION_FAILED | why.RECORDED:
                return self.error
            case why.CANCELLED:
                return _CANCELLED


class GenerationFailureReason(Enum):
    """Why a generation of a job, which is all that runs between two restarts, failed."""

    NOT_PREPARED = "not prepared"
    """Storage, a source or a sink stood in the way before any worker was started."""
    SUPERSEDED = "superseded"
    """Another coordinator has taken over the checkpoints of the job."""
    DAMAGED = "damaged"
    """A subtask found the restored checkpoint damaged: another one is chosen."""
    WORKER_FAILED = "worker failed"
    """A worker died, or one of its subtasks raised."""
    NOT_CONNECTED = "not connected"
    """Workers did not come up in time."""
    NOT_STARTED = "not started"
    """Subtasks did not start in time."""
    NOT_CAUGHT_UP = "not caught up"
    """A worker that came back alone did not send in time what it had sent before."""
    SILENT = "silent"
    """A worker gave no sign of life for too long."""
    CHECKPOINTS_FAILED = "checkpoints failed"
    """More checkpoints in a row failed than `Checkpointing.tolerable_failures`."""
    COMMITS_FAILED = "commits failed"
    """More commits in a row failed than `Checkpointing.tolerable_failures`."""
    COMMIT_REFUSED = "commit refused"
    """A sink said that what it has to commit can never be committed as it is."""
    SOURCE_GAVE_UP = "source gave up"
    """A source that was told how far it is stored said that the job must end."""
    SPREAD = "spread"
    """No failure: hosts have come, and the next generation uses their slots."""
    GROWS = "grows"
    """No failure: hosts have come, and the parallelism of the job follows them."""


@dataclass(frozen=True, slots=True)
class GenerationFailure:
    """Why a generation failed, and perhaps the job with it. `str` of it is the message for people."""

    reason: GenerationFailureReason
    raised: Exception | None = None
    """What brought it about, if something was raised."""
    count: int = 0
    """How many subtasks did not start, or checkpoints or commits failed."""
    seconds: float = 0.0
    """How long was waited."""
    worker: int = 0
    """The number of the worker that was silent."""
    checkpoint: CheckpointFailure | None = None
    """Why the last checkpoint failed, if checkpoints did."""

    @property
    def error(self) -> Exception:
        """What users catch, and observers hear of."""
        why = GenerationFailureReason
        match self.reason:
            case (
                why.NOT_CONNECTED
                | why.NOT_STARTED
                | why.NOT_CAUGHT_UP
                | why.SILENT
                | why.SPREAD
                | why.GROWS
            ):
                return WorkerLostError(str(self))
            case why.CHECKPOINTS_FAILED | why.COMMITS_FAILED:
                return StorageError(str(self))
            case _:
                assert self.raised is not None
                return self.raised

    def of_checkpoint(self) -> CheckpointFailure:
        """Why the checkpoint failed that was being taken."""
        reason = CheckpointFailureReason.GENERATION_FAILED
        return CheckpointFailure(reason, str(self), generation_failure=self.reason)

    def of_savepoint(self) -> SavepointFailure:
        """Why there is no savepoint for whoever waited for one."""
        reason = SavepointFailureReason.GENERATION_FAILED
        return SavepointFailure(reason, str(self), generation_failure=self.reason)

    def __str__(self) -> str:
        why = GenerationFailureReason
        match self.reason:
            case why.NOT_CONNECTED:
                return f"workers did not come up and connect within {self.seconds:g} s"
            case why.NOT_STARTED:
                return f"{self.count} subtasks did not start within {self.seconds:g} s"
            case why.NOT_CAUGHT_UP:
                return (
                    f"{self.count} subtasks that came back alone did not send within {self.seconds:g} s "
                    "what they had sent before; is a function not deterministic?"
                )
            case why.SILENT:
                return f"worker {self.worker} gave no sign of life for {self.seconds:.1f} s"
            case why.CHECKPOINTS_FAILED:
                return f"{self.count} checkpoints in a row failed, at last: {self.checkpoint}"
            case why.COMMITS_FAILED:
                return f"{self.count} commits in a row failed, at last: {self.raised}"
            case why.SPREAD:
                return "enough hosts have come: its subtasks need not share slots any more"
            case why.GROWS:
                return "hosts have come: its parallelism grows with their slots"
            case _:
                return str(self.raised)


class SavepointFailureReason(Enum):
    """Why a user who asked for a savepoint gets none."""

    TOO_MANY_REQUESTS = "too many requests"
    """As many requests as `Limits.savepoint_requests` wait for their answer."""
    CHECKPOINT_FAILED = "checkpoint failed"
    NOT_PUBLISHED = "not published"
    """It is complete, but could not be copied to where it was wanted."""
    GENERATION_FAILED = "generation failed"
    """The job failed meanwhile: it restarts, or has ended."""
    CANCELLED = "cancelled"
    """The job was cancelled meanwhile."""
    JOB_ENDED = "job ended"
    """The job ended before the savepoint could be taken."""


@dataclass(frozen=True, slots=True)
class SavepointFailure:
    """Why there is no savepoint. `str` of it is the message for people."""

    reason: SavepointFailureReason
    error: str = ""
    """What was raised, in words."""
    unanswered: int = 0
    """How many requests wait already."""
    checkpoint_id: int = 0
    """The checkpoint that was to become the savepoint, if it has failed."""
    checkpoint: CheckpointFailure | None = None
    """Why it failed."""
    generation_failure: GenerationFailureReason | None = None
    """Why the generation failed during which it was asked for."""
    kept_at: str | None = None
    """Where the checkpoint is that could not be copied."""
    status: str = ""
    """How the job ended."""

    def __str__(self) -> str:
        why = SavepointFailureReason
        match self.reason:
            case why.TOO_MANY_REQUESTS:
                return f"{self.unanswered} others wait already (limit {named('limits.savepoint_requests')})"
            case why.CHECKPOINT_FAILED:
                return f"checkpoint {self.checkpoint_id} {self.checkpoint}"
            case why.NOT_PUBLISHED if self.kept_at is not None:
                return f"{self.error}; the checkpoint itself is {self.kept_at}"
            case why.NOT_PUBLISHED | why.GENERATION_FAILED:
                return self.error
            case why.CANCELLED:
                return _CANCELLED
            case why.JOB_ENDED:
                return f"the job has ended: {self.status}"


_CANCELLED = "the job was cancelled"


def failed_by(error: Exception, otherwise: GenerationFailureReason) -> GenerationFailure:
    """Why a generation failed in which `error` was raised: `otherwise`, unless it was superseded."""
    superseded = isinstance(error, SupersededError)
    return GenerationFailure(GenerationFailureReason.SUPERSEDED if superseded else otherwise, error)


def error_text(error: Exception) -> str:
    """The message of an error; its type and arguments if it has none."""
    return str(error) or repr(error)


def _in_short(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
