"""Savepoints: what users ask for, in which order they get it, and what they are told.

A savepoint is a checkpoint of the job like any other: it has an id of the same sequence, its output is
committed, and a restart may begin from it. One request at a time is *active*. Its checkpoint is taken
(if the job is to be drained, once all subtasks have), is *complete* once the manifest exists, and is
*published* once its output is committed: only then is it copied to the user's path, so that the copy
owes nobody a commit. The request is active until it is answered, and each one is answered once.

A drain cannot be taken back once its manifest exists: operators have seen the end of time in it, and put
out what they held until then. Whoever went on from it would put out the rest of a window a second time.
So the job ends with it. Workers are not needed for that; and a generation that finds such a manifest, of
a drain that is not over, deploys nothing: it commits, copies, and ends the job as drained.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.job_events import (
    AnswerSavepoint,
    JobCommand,
    PublishSavepoint,
    SavepointNotPublished,
)
from minirt.protocol.manifest import CheckpointKind, Drain, Manifest, ManifestKey
from minirt.protocol.reasons import SavepointFailure, SavepointFailureReason, error_text
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest


class Savepoints:
    """The requests of one job, over all its generations; at most `requests_max` are unanswered."""

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._waiting: deque[SavepointRequest] = deque()
        self._complete: Manifest | None = None
        """The manifest of the active request's checkpoint, once it exists."""
        self._publishing = False
        self._failure: SavepointFailure | None = None
        """Why the generation has ended during which the active request, a drain, was under way."""
        self.active: SavepointRequest | None = None
        self.job_is_over = False
        """The savepoint with which the job was to end is there, and nothing is left to do."""
        self.final: Savepoint | None = None
        """The savepoint with which the job ends, unless its copy failed."""
        self.ended_because: str | None = None
        """The reason that came with the request for that savepoint."""

    @property
    def untaken(self) -> SavepointRequest | None:
        """The active request, if its checkpoint is not complete."""
        return self.active if self._complete is None else None

    @property
    def ends_job(self) -> bool:
        """Whether the job is about to end with a savepoint: no other checkpoint may follow."""
        if self.active is None:
            return self.drain_is_complete
        return self.active.afterwards is not Afterwards.GO_ON

    @property
    def drain_is_complete(self) -> bool:
        """Whether a manifest exists with which the job ends, whatever fails from now on."""
        return self._complete is not None and self._complete.drain is not None

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
            too_many = SavepointFailureReason.TOO_MANY_REQUESTS
            return [_refusal(request, SavepointFailure(too_many, unanswered=unanswered))]
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
        return [self._publish(complete, self.active.path)]

    def on_prepared(self, unfinished: Manifest | None) -> list[JobCommand]:
        """A generation has committed what it restores: perhaps that of a drain that is not over."""
        if unfinished is not None and unfinished.drain is not None:
            self._complete = unfinished
            return [self._publish(unfinished, unfinished.drain.path)]
        if self.active is None or self._failure is None:
            return []
        return self.fail(self._failure)

    def on_published(self, checkpoint_id: int, path: str) -> list[JobCommand]:
        manifest = self._complete
        if manifest is None or manifest.checkpoint_id != checkpoint_id:
            return []  # Of a generation that has ended: the user was told so.
        savepoint = Savepoint(
            path, checkpoint_id, manifest.mode, manifest.duration_s, manifest.bytes
        )
        answer = [] if self.active is None else [AnswerSavepoint(self.active.id, savepoint)]
        if self.ends_job:
            self.job_is_over, self.final = True, savepoint
            self.ended_because = None if self.active is None else self.active.reason
        self._forget_active()
        return [*answer]

    def on_not_published(self, event: SavepointNotPublished) -> list[JobCommand]:
        """The copy failed. A drained job cannot go on: it ends with the checkpoint in its own storage."""
        if self._complete is None or self._complete.checkpoint_id != event.checkpoint_id:
            return []
        self.job_is_over = self.drain_is_complete
        if self.job_is_over and self.active is not None:
            self.ended_because = self.active.reason
        reason, error = SavepointFailureReason.NOT_PUBLISHED, error_text(event.error)
        return self.fail(SavepointFailure(reason, error, kept_at=event.kept_at))

    def fail(self, failure: SavepointFailure) -> list[JobCommand]:
        """The active request, if there is one, has failed."""
        answer = [] if self.active is None else [_refusal(self.active, failure)]
        self._forget_active()
        return answer

    def fail_all(self, failure: SavepointFailure) -> list[JobCommand]:
        """No request can be served any more."""
        commands = self.fail(failure)
        commands += [_refusal(request, failure) for request in self._waiting]
        self._waiting.clear()
        return commands

    def on_generation_failed(self, failure: SavepointFailure) -> list[JobCommand]:
        """Requests fail with their generation. The next one finds on storage whether a drain has."""
        draining = self.active
        if draining is None or draining.afterwards is not Afterwards.DRAIN:
            return self.fail_all(failure)
        self._forget_active()
        refused = self.fail_all(failure)
        self.active, self._failure = draining, failure
        return refused

    def _publish(self, complete: Manifest, path: str | None) -> JobCommand:
        self._publishing = True
        return PublishSavepoint(replace(complete, kind="savepoint", sink_handles=()), path)

    def _forget_active(self) -> None:
        self.active = self._complete = None
        self._publishing = False


def kind_of(request: SavepointRequest | None, *, drained: bool) -> CheckpointKind:
    """What a checkpoint is in the job's own storage. Where it is copied it need not stay."""
    if request is None:
        return "final" if drained else "checkpoint"
    stays = request.path is None or request.afterwards is Afterwards.DRAIN
    return "savepoint" if stays else "checkpoint"


def drain_of(request: SavepointRequest | None) -> Drain | None:
    """What the manifest of its checkpoint says about the end of the job."""
    drains = request is not None and request.afterwards is Afterwards.DRAIN
    return Drain(request.path) if request is not None and drains else None


def _refusal(request: SavepointRequest, failure: SavepointFailure) -> JobCommand:
    return AnswerSavepoint(request.id, failure=failure)
