"""Savepoints: what users ask for, in which order they get it, and what they are told.

A savepoint is a checkpoint of the job like any other: it has an id of the same row, its output is
committed, and a restart may begin from it. One request at a time is *active*. Its checkpoint is taken
(if the job is to be drained, once all subtasks have), is *complete* once the manifest exists, and is
*published* once its output is committed: only then is it copied to the user's path, so that the copy
owes nobody a commit. The request is active until it is answered, and each one is answered once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from minirt.errors import SavepointFailedError
from minirt.protocol.job_events import AnswerSavepoint, JobCommand, PublishSavepoint
from minirt.protocol.manifest import CheckpointKind, CheckpointPaths, Manifest, ManifestKey
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest


class Savepoints:
    """The requests of one job, over all its generations; at most `requests_max` are unanswered."""

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._waiting: deque[SavepointRequest] = deque()
        self._complete: Manifest | None = None
        """That of the active request, once it exists."""
        self._publishing = False
        self.active: SavepointRequest | None = None
        self.job_is_over = False
        """The savepoint with which the job was to end is there, and nothing is left to do."""
        self.final: Savepoint | None = None
        """That savepoint, unless it could not be copied to where it was wanted."""

    @property
    def untaken(self) -> SavepointRequest | None:
        """The active request, if its checkpoint is not complete."""
        return self.active if self._complete is None else None

    @property
    def ends_job(self) -> bool:
        """Whether the job is about to end with a savepoint: no other checkpoint may follow."""
        return self.active is not None and self.active.afterwards is not Afterwards.GO_ON

    @property
    def uncommitted_id(self) -> int | None:
        """The checkpoint whose commit the active request waits for."""
        if self._complete is None or self._publishing:
            return None
        return self._complete.checkpoint_id

    @property
    def needed(self) -> frozenset[ManifestKey]:
        """The checkpoints whose files are still to be copied."""
        if self._complete is None:
            return frozenset()
        keys = map(CheckpointPaths.parse_file, self._complete.summary().paths)
        return frozenset(key for key in keys if key is not None)

    def add(self, request: SavepointRequest) -> list[JobCommand]:
        """Queue a request, or refuse it."""
        unanswered = len(self._waiting) + (self.active is not None)
        if unanswered >= self._requests_max:
            reason = f"{unanswered} others wait already (limit savepoint_requests)"
            return [_refusal(request, reason)]
        self._waiting.append(request)
        return []

    def begin(self) -> SavepointRequest | None:
        """Make the oldest request active and return it; None if there is none, or one is active."""
        if self.active is not None or not self._waiting:
            return None
        self.active = self._waiting.popleft()
        return self.active

    def on_stored(self, manifest: Manifest) -> None:
        """A checkpoint is complete; it may be that of the active request."""
        if self.untaken is not None:
            self._complete = manifest

    def on_committed(self, checkpoint_id: int) -> list[JobCommand]:
        """All output up to this checkpoint is visible."""
        complete, waits_for = self._complete, self.uncommitted_id
        if complete is None or waits_for is None or waits_for > checkpoint_id:
            return []
        assert self.active is not None
        self._publishing = True
        savepoint = replace(complete, kind="savepoint", sink_handles=())
        return [PublishSavepoint(savepoint, self.active.path)]

    def on_published(self, checkpoint_id: int, path: str) -> list[JobCommand]:
        manifest = self._complete
        if manifest is None or manifest.checkpoint_id != checkpoint_id:
            return []  # Of a generation that has ended: the user was told so.
        assert self.active is not None
        savepoint = Savepoint(
            path, checkpoint_id, manifest.mode, manifest.duration_s, manifest.bytes
        )
        answer = AnswerSavepoint(self.active.id, savepoint)
        if self.ends_job:
            self.job_is_over, self.final = True, savepoint
        self._forget_active()
        return [answer]

    def on_not_published(self, checkpoint_id: int, reason: str) -> list[JobCommand]:
        """What was drained cannot go on: then the job ends all the same, with its own checkpoint."""
        if self._complete is None or self._complete.checkpoint_id != checkpoint_id:
            return []
        assert self.active is not None
        self.job_is_over = self.active.afterwards is Afterwards.DRAIN
        return self.fail(reason)

    def fail(self, reason: str) -> list[JobCommand]:
        """The active request has failed."""
        assert self.active is not None
        answer = _refusal(self.active, reason)
        self._forget_active()
        return [answer]

    def fail_all(self, reason: str) -> list[JobCommand]:
        """No request can be served any more."""
        commands = [] if self.active is None else self.fail(reason)
        commands += [_refusal(request, reason) for request in self._waiting]
        self._waiting.clear()
        return commands

    def _forget_active(self) -> None:
        self.active = self._complete = None
        self._publishing = False


def kind_of(request: SavepointRequest | None, *, drained: bool) -> CheckpointKind:
    """What a checkpoint is in the job's own storage. Where it is copied it need not stay."""
    if request is None:
        return "final" if drained else "checkpoint"
    stays = request.path is None or request.afterwards is Afterwards.DRAIN
    return "savepoint" if stays else "checkpoint"


def _refusal(request: SavepointRequest, reason: str) -> JobCommand:
    return AnswerSavepoint(request.id, error=SavepointFailedError(f"no savepoint: {reason}"))
