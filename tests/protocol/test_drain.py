"""Drains that fail at every step: whatever happens, once its manifest exists the job ends with it.

A job is drained in a world of plain data: storage, sinks and workers do at once what they are told.
Every run is the one before with a fault at another step; all runs with up to two faults are made.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from minirt.errors import WorkerLostError
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CancelRequested,
    CommitFailed,
    CommitHandles,
    Deploy,
    EndJob,
    GenerationFailed,
    GenerationPrepared,
    HandlesCommitted,
    JobCommand,
    JobEvent,
    JobStatus,
    ManifestRefused,
    ManifestStored,
    PrepareGeneration,
    PublishSavepoint,
    SavepointNotPublished,
    SavepointPublished,
    SavepointRequested,
    SetTimer,
    StoreManifest,
    Submitted,
    SubtaskDrained,
    SubtaskStarted,
    TimerFired,
    TimerKind,
    WorkerFailed,
    WorkersConnected,
)
from minirt.protocol.manifest import Manifest
from minirt.protocol.restarts import Restart
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.subtask_commands import DrainSources, TriggerCheckpoint
from tests.protocol.parts import SINK, SOURCE, acknowledged, handles
from tests.protocol.test_job import job

SUBTASKS = (SOURCE, SINK)
STEPS_MAX = 60
FAULTS = ("worker", "coordinator", "storage before", "storage after", "too many commits")
STORAGE = (PrepareGeneration, StoreManifest, CommitHandles, PublishSavepoint)


class DrainedJob:
    """What outlives a coordinator, and the coordinator of now."""

    def __init__(self) -> None:
        self.manifests: list[Manifest] = []
        self.over: dict[int, JobProtocol] = {}
        """The checkpoints whose drains are over, and who has seen to that."""
        self.reads_on = False
        """Whether a job has begun after the end of the drain, as a user may want it."""
        self.committed: set[int] = set()
        self.copied: list[int] = []
        self.answers = Counter[str]()
        self.wrong: list[str] = []
        self.generation = 0
        self.ending: EndJob | None = None
        self.now = 0.0
        self._start()

    def _start(self) -> None:
        settings = CheckpointSettings("aligned", interval_s=None, tolerable_failures=1)
        self.protocol = job(settings, Restart.fixed_delay(attempts=9, delay=1.0))
        self.events: deque[JobEvent] = deque([Submitted()])
        self.commands: deque[JobCommand] = deque()
        self.timers: list[tuple[float, TimerFired]] = []
        self.asking = False

    def step(self, fault: str | None = None) -> None:
        """One thing happens, or goes wrong."""
        self.now += 0.01
        match fault:
            case "worker":
                self._tell(WorkerFailed(self.generation, WorkerLostError("gone")))
            case "coordinator":
                self._start()
            case "storage before" | "storage after" if self.commands:
                command = self.commands.popleft()
                if fault == "storage after":
                    self._carry_out(command)
                    if isinstance(command, PublishSavepoint):
                        self.over.clear()  # It is put on record last.
                self.events.append(_failed(command))
            case "too many commits" if not (self.over or self._is_publishing):
                for id in [manifest.checkpoint_id for manifest in self.manifests][-1:] * 2:
                    self._tell(CommitFailed(id, OSError("full")))
            case None:
                self._go_on()

    @property
    def _is_publishing(self) -> bool:
        """All output is committed by then."""
        return any(isinstance(command, PublishSavepoint) for command in self.commands)

    def _go_on(self) -> None:
        if self.commands:
            self.events.append(self._carry_out(self.commands.popleft()))
        elif self.events:
            self._tell(self.events.popleft())
        elif self.timers:
            self.timers.sort(key=lambda timer: timer[0])
            at, fired = self.timers.pop(0)
            self.now = max(self.now, at)
            self._tell(fired)

    def _tell(self, event: JobEvent) -> None:
        for command in self.protocol.handle(event, self.now):
            self._obey(command)
        if self.protocol.status is JobStatus.RUNNING and not (self.asking or self.manifests):
            self.asking = True
            self.answers["asked"] += 1
            drain = SavepointRequest(7, "aligned", "/there", Afterwards.DRAIN)
            self.events.append(SavepointRequested(drain))

    def _obey(self, command: JobCommand) -> None:
        generation = self.generation
        match command:
            case Deploy():
                if self.manifests:
                    ended_by = self.over.get(self.manifests[-1].checkpoint_id)
                    self.reads_on = ended_by not in (None, self.protocol)
                    if not self.reads_on:
                        self.wrong.append("goes on from what was drained")
                self.events.append(WorkersConnected(generation))
                self.events += [SubtaskStarted(generation, id) for id in SUBTASKS]
            case DrainSources():
                self.events += [SubtaskDrained(generation, id) for id in SUBTASKS]
            case TriggerCheckpoint(barrier=barrier):
                id = barrier.checkpoint_id
                self.events.append(acknowledged(id, SOURCE, generation=generation))
                held = handles(id)
                self.events.append(acknowledged(id, SINK, held, generation=generation))
            case SetTimer(timer, at) if timer.kind in (
                *(TimerKind.RESTART, TimerKind.COMMIT, TimerKind.TRIGGER),
            ):
                self.timers.append((at, TimerFired(timer)))
            case AnswerSavepoint():
                self.answers["error" if command.failure else "savepoint"] += 1
                self.asking = False
            case EndJob():
                self.ending = command
            case _ if isinstance(command, STORAGE):
                self.commands.append(command)

    def _carry_out(self, command: JobCommand) -> JobEvent:
        match command:
            case StoreManifest(manifest):
                if manifest.generation == self.generation:
                    self.manifests.append(manifest)
                return ManifestStored(manifest.checkpoint_id)
            case CommitHandles(checkpoint_id, held):
                self._commit(held)
                return HandlesCommitted(checkpoint_id)
            case PublishSavepoint(manifest):
                self._commit_is_due(manifest)
                self.copied.append(manifest.checkpoint_id)
                self.over.setdefault(manifest.checkpoint_id, self.protocol)
                return SavepointPublished(manifest.checkpoint_id, "/there")
        self.generation += 1
        newest = self.manifests[-1] if self.manifests else None
        if newest is not None:
            self._commit(newest.sink_handles)
        drains = newest is not None and newest.checkpoint_id not in self.over
        return GenerationPrepared(self.generation, newest, len(self.manifests) + 1, drains)

    def _commit(self, held: tuple[object, ...]) -> None:
        self.committed |= {each.checkpoint_id for each in held}  # type: ignore[attr-defined]

    def _commit_is_due(self, manifest: Manifest) -> None:
        if manifest.checkpoint_id not in self.committed:
            self.wrong.append("copied before its output is committed")


def _failed(command: JobCommand) -> JobEvent:
    match command:
        case StoreManifest(manifest):
            return ManifestRefused(manifest.checkpoint_id, OSError("no answer"))
        case CommitHandles(checkpoint_id):
            return CommitFailed(checkpoint_id, OSError("no answer"))
        case PublishSavepoint(manifest):
            return SavepointNotPublished(manifest.checkpoint_id, OSError("no answer"))
    return GenerationFailed(OSError("no answer"), fatal=False)


def run(faults: dict[int, str]) -> DrainedJob:
    world = DrainedJob()
    for step in range(STEPS_MAX):
        world.step(faults.get(step))
        if world.ending is not None or world.reads_on:
            break
    return world


def plans() -> Iterator[dict[int, str]]:
    """Up to two faults at any two steps."""
    steps = range(len_of_a_run())
    for first, second in combinations(steps, 2):
        for kinds in product(FAULTS, repeat=2):
            yield {first: kinds[0], second: kinds[1]}


def len_of_a_run() -> int:
    world, steps = DrainedJob(), 0
    while world.ending is None:
        world.step()
        steps += 1
    return steps + 4


def test_a_drain_without_faults_is_copied_and_ends_the_job() -> None:
    world = run({})
    assert world.ending is not None
    assert world.ending.status is JobStatus.STOPPED
    assert (world.copied, list(world.over)) == ([1], [1])
    assert world.answers == Counter(asked=1, savepoint=1)
    assert world.manifests[0].drain is not None


def test_whatever_fails_a_job_ends_with_its_drain_and_never_goes_on_from_it() -> None:
    copied = Counter[int]()
    for faults in plans():
        world = run(faults)
        assert world.wrong == [], faults
        if not world.reads_on:
            assert world.ending is not None, faults
            assert world.ending.status is JobStatus.STOPPED, faults
        assert world.manifests[-1].checkpoint_id in world.committed, faults
        unanswered = world.answers["asked"] * 2 - world.answers.total()
        assert 0 <= unanswered <= list(faults.values()).count("coordinator"), faults
        copied[len(world.copied)] += 1
    assert min(copied[times] for times in (0, 1, 2)) > 0


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELLED])
def test_who_asked_for_a_drain_hears_of_it_when_the_job_ends_otherwise(status: JobStatus) -> None:
    attempts = Restart.none() if status is JobStatus.FAILED else Restart.fixed_delay(3, 1.0)
    world = DrainedJob()
    world.protocol = job(restarts=attempts)
    while not any(isinstance(command, CommitHandles) for command in world.commands):
        world.step()
    if status is JobStatus.CANCELLED:
        world._tell(CancelRequested())
    else:
        world.step("too many commits")
    assert world.ending is not None
    assert world.ending.status is status
    assert world.answers == Counter(asked=1, error=1)
