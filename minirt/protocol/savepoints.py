"""Savepoints: what users ask for, in which order they get it, and what they are told.

A savepoint is a checkpoint of the job like any other: it has an id of the same sequence, its output is
committed, and a restart may begin from it. A request becomes *active* in its turn. Its checkpoint is taken
(if the job is to be drained, once all subtasks have), is *complete* once the manifest exists, and is
*published* once its output is committed: only then is it copied to the user's path, so that the copy
owes nobody a commit. The request is active until it is answered, and each one is answered once. Several
are active at a time where checkpoints may overlap; one that ends the job is active alone.

A drain cannot be taken back once its manifest exists: operators have seen the end of time in it, and put
out what they held until then. Whoever went on from it would put out the rest of a window a second time.
So the job ends with it. Workers are not needed for that; and a generation that finds such a manifest, of
a drain that is not over, deploys nothing: it commits, copies, and ends the job as drained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.job_events import (
    AnswerSavepoint,
    JobCommand,
    PublishSavepoint,
    SavepointNotPublished,
)
from minirt.protocol.manifest import CheckpointKind, Manifest, ManifestKey
from minirt.protocol.reasons import SavepointFailure, SavepointFailureReason, error_text
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest


@dataclass(slots=True, eq=False)
class _Active:
    """A request whose turn it is. None stands for that of a drain in an earlier run of the job."""

    request: SavepointRequest | None
    complete: Manifest | None = None
    """The manifest of its checkpoint, once it exists."""
    publishing: bool = False

    @property
    def ends_job(self) -> bool:
        return self.request is None or self.request.afterwards is not Afterwards.GO_ON

    @property
    def is_drained(self) -> bool:
        return self.complete is not None and self.complete.drain is not None

    @property
    def uncommitted_id(self) -> int | None:
        """The checkpoint whose commit it waits for."""
        if self.complete is None or self.publishing:
            return None
        return self.complete.checkpoint_id

    def publish(self, complete: Manifest, path: str | None) -> JobCommand:
        self.publishing = True
        return PublishSavepoint(replace(complete, kind="savepoint", sink_handles=()), path)

    def refuse(self, failure: SavepointFailure) -> list[JobCommand]:
        return [] if self.request is None else [_refusal(self.request, failure)]


class Savepoints:
    """The requests of one job, over all its generations; at most `requests_max` are unanswered."""

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._waiting: deque[SavepointRequest] = deque()
        self._active: list[_Active] = []
        """In the order in which they became active."""
        self._failure: SavepointFailure | None = None
        """Why the generation has ended during which a drain was under way."""
        self.job_is_over = False
        """The savepoint with which the job was to end is there, and nothing is left to do."""
        self.final: Savepoint | None = None
        """The savepoint with which the job ends, unless its copy failed."""
        self.ended_because: str | None = None
        """The reason that came with the request for that savepoint."""

    @property
    def next(self) -> SavepointRequest | None:
        """The oldest request that is not active."""
        return self._waiting[0] if self._waiting else None

    @property
    def is_busy(self) -> bool:
        """Whether any request is active."""
        return bool(self._active)

    @property
    def untaken(self) -> tuple[SavepointRequest, ...]:
        """The active requests whose checkpoints are not complete."""
        return tuple(one.request for one in self._active if one.request and one.complete is None)

    @property
    def ends_job(self) -> bool:
        """Whether the job is about to end with a savepoint: no other checkpoint may follow."""
        return any(one.ends_job for one in self._active)

    @property
    def stops_job(self) -> bool:
        """Whether sources wait behind the savepoint that the job is to end with."""
        stop = Afterwards.STOP
        return any(one.request and one.request.afterwards is stop for one in self._active)

    @property
    def drain_is_complete(self) -> bool:
        """Whether a manifest exists with which the job ends, whatever fails from now on."""
        return any(one.is_drained for one in self._active)

    @property
    def uncommitted(self) -> frozenset[int]:
        """The checkpoints whose commits active requests wait for."""
        ids = (one.uncommitted_id for one in self._active)
        return frozenset(id for id in ids if id is not None)

    def needed(self, storing: Iterable[Manifest]) -> frozenset[ManifestKey]:
        """The checkpoints whose files are still to be copied, those whose manifests are `storing` as well.

        Before it is known that these are stored, a later one may be, and retention would keep only that.
        """
        complete = (one.complete for one in self._active if one.complete is not None)
        paths = (path for each in (*complete, *storing) for path in each.summary().paths)
        keys = map(CheckpointPaths.parse_file, paths)
        return frozenset(key for key in keys if key is not None)

    def add(self, request: SavepointRequest) -> list[JobCommand]:
        """Queue a request, or refuse it."""
        unanswered = len(self._waiting) + len(self._active)
        if unanswered >= self._requests_max:
            too_many = SavepointFailureReason.TOO_MANY_REQUESTS
            return [_refusal(request, SavepointFailure(too_many, unanswered=unanswered))]
        self._waiting.append(request)
        return []

    def begin(self) -> SavepointRequest:
        """Make the oldest request active; there must be one."""
        request = self._waiting.popleft()
        self._active.append(_Active(request))
        return request

    def on_stored(self, request: SavepointRequest, manifest: Manifest) -> None:
        """The checkpoint of an active request is complete."""
        for one in self._of(request):
            one.complete = manifest

    def on_committed(self, checkpoint_id: int) -> list[JobCommand]:
        """All output up to this checkpoint is visible."""
        commands: list[JobCommand] = []
        for one in self._active:
            waits_for, complete, request = one.uncommitted_id, one.complete, one.request
            if waits_for is None or waits_for > checkpoint_id:
                continue
            assert complete is not None
            assert request is not None
            commands.append(one.publish(complete, request.path))
        return commands

    def on_prepared(self, unfinished: Manifest | None) -> list[JobCommand]:
        """A generation has committed what it restores: perhaps that of a drain that is not over."""
        if unfinished is not None and unfinished.drain is not None:
            self._active = self._active or [_Active(None)]
            [drain] = self._active
            drain.complete = unfinished
            return [drain.publish(unfinished, unfinished.drain.path)]
        if not self._active or self._failure is None:
            return []
        return self._fail(self._active, self._failure)

    def on_published(self, checkpoint_id: int, path: str) -> list[JobCommand]:
        commands: list[JobCommand] = []
        for one, manifest in self._complete_as(checkpoint_id):
            savepoint = Savepoint(
                path, checkpoint_id, manifest.mode, manifest.duration_s, manifest.bytes
            )
            if one.request is not None:
                commands.append(AnswerSavepoint(one.request.id, savepoint))
            if one.ends_job:
                self.job_is_over, self.final = True, savepoint
                self.ended_because = None if one.request is None else one.request.reason
            self._active.remove(one)
        return commands

    def on_not_published(self, event: SavepointNotPublished) -> list[JobCommand]:
        """The copy failed. A drained job cannot go on: it ends with the checkpoint in its own storage."""
        failed = [one for one, _ in self._complete_as(event.checkpoint_id)]
        for one in failed:
            self.job_is_over = one.is_drained
            if self.job_is_over and one.request is not None:
                self.ended_because = one.request.reason
        reason, error = SavepointFailureReason.NOT_PUBLISHED, error_text(event.error)
        return self._fail(failed, SavepointFailure(reason, error, kept_at=event.kept_at))

    def fail(self, request: SavepointRequest, failure: SavepointFailure) -> list[JobCommand]:
        """The checkpoint of an active request has failed."""
        return self._fail(self._of(request), failure)

    def fail_all(self, failure: SavepointFailure) -> list[JobCommand]:
        """No request can be served any more."""
        commands = self._fail(self._active, failure)
        commands += [_refusal(request, failure) for request in self._waiting]
        self._waiting.clear()
        return commands

    def on_generation_failed(self, failure: SavepointFailure) -> list[JobCommand]:
        """Requests fail with their generation. The next one finds on storage whether a drain has."""
        drain = Afterwards.DRAIN
        requests = [one.request for one in self._active]
        draining = [each for each in requests if each and each.afterwards is drain]
        self._active = [one for one in self._active if one.request not in draining]
        refused = self.fail_all(failure)
        if draining:
            self._active, self._failure = [_Active(request) for request in draining], failure
        return refused

    def _of(self, request: SavepointRequest) -> list[_Active]:
        return [one for one in self._active if one.request == request]

    def _complete_as(self, checkpoint_id: int) -> list[tuple[_Active, Manifest]]:
        """None, for a checkpoint of a generation that has ended: the user was told so."""
        return [
            (one, one.complete)
            for one in self._active
            if one.complete is not None and one.complete.checkpoint_id == checkpoint_id
        ]

    def _fail(self, failed: Collection[_Active], failure: SavepointFailure) -> list[JobCommand]:
        self._active = [one for one in self._active if one not in failed]
        return [command for one in failed for command in one.refuse(failure)]


def kind_of(request: SavepointRequest | None, *, drained: bool) -> CheckpointKind:
    """What a checkpoint is in the job's own storage. Where it is copied it need not stay."""
    if request is None:
        return "final" if drained else "checkpoint"
    stays = request.path is None or request.afterwards is Afterwards.DRAIN
    return "savepoint" if stays else "checkpoint"


def _refusal(request: SavepointRequest, failure: SavepointFailure) -> JobCommand:
    return AnswerSavepoint(request.id, failure=failure)
