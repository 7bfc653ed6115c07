"""All errors that minirt raises: one root, and one child for each party that can err."""

from __future__ import annotations

from enum import Enum

from minirt.secret_texts import without_secrets


class MinirtError(Exception):
    """Root of every error that minirt raises on purpose; anything else is a bug.

    Its message leaves out passwords and signatures of URLs: see `minirt.secret_texts`.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(
            *(without_secrets(one) if isinstance(one, str) else one for one in arguments)
        )


class ConfigurationError(MinirtError, ValueError):
    """The caller described a job or an option that cannot work.

    Mostly minirt has started nothing yet. A job that finds out while it runs fails without a restart.
    """


class UserCodeError(MinirtError):
    """A function of the user raised; the message holds operator, record and its own traceback."""


class UnsupportedValueError(UserCodeError):
    """A record or a value of state has a type that can be neither sent nor stored.

    The job fails without a restart, since it would meet the value again.
    """


class SourceDataError(MinirtError):
    """Input could not be read or parsed; the message names file, position and text."""


class BadRecordError(SourceDataError):
    """A record of the input does not parse, or has no event time that can be used.

    The job fails without a restart, since it would meet the record again.
    """


class SourceChangedError(SourceDataError):
    """What a source reads is another system than the checkpoint remembers, or one that went back.

    The message names both, and the option `accept` of the source that goes on all the same. The job fails
    without a restart, since the next start would find the same.
    """


class SinkDataError(MinirtError):
    """A sink cannot store a record, or not in what its table or topic has become.

    The message names operator, column and record; or what the sink has committed, and what the other side
    knows of that. The job fails without a restart, since it would meet the same again.
    """


class StorageError(MinirtError):
    """Storage failed or holds something unusable; `path` says where."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message}: {path}" if path else message)
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[type[StorageError], tuple[str, str]]:
        return (type(self), (self.message, self.path))


class CorruptCheckpointError(StorageError):
    """A stored part of a checkpoint is missing, torn or fails its checksum."""


class SavepointFailedError(MinirtError):
    """A savepoint was not taken, or not stored where it was wanted; the message says why.

    `reason` says it to programs: a `SavepointFailureReason`.
    """

    def __init__(self, message: str, reason: Enum | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class WorkerLostError(MinirtError):
    """A worker process died or stopped answering."""


class JobFailedError(MinirtError):
    """The job ended for good: its restart strategy gave up or forbids a restart.

    `reason` says to programs why its last generation failed: a `GenerationFailureReason`.
    """

    def __init__(self, message: str, reason: Enum | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class SupersededError(JobFailedError):
    """Another coordinator has taken over the checkpoints of this job, which is therefore over here.

    `by` names its program, as far as anybody knows.
    """

    def __init__(self, by: str | None = None) -> None:
        who = "" if by is None else f": {by}"
        super().__init__(f"another coordinator has taken over this job's checkpoints{who}")
        self.by = by

    def __reduce__(self) -> tuple[type[SupersededError], tuple[str | None]]:
        return (type(self), (self.by,))


class ProtocolError(MinirtError):
    """An invariant of minirt itself was violated: a bug, please report it."""
