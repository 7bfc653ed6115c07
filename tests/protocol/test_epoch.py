"""Sources that wait behind a barrier until the checkpoint is over: when the coordinator orders what."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from minirt.errors import StorageError
from minirt.modes import MODES
from minirt.modes.aligned import Aligned
from minirt.modes.epoch import Epoch
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.families import HasFamily
from minirt.protocol.job_events import (
    JobCommand,
    ManifestRefused,
    SavepointNotPublished,
    SetTimer,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.subtask_commands import AbortCheckpoint, ResumeSources, TriggerCheckpoint
from tests.protocol.parts import (
    SINK,
    SOURCE,
    CoordinatedJob,
    acknowledged,
    declined,
    trigger_timer,
)

SETTINGS = CheckpointSettings(
    "epoch", interval_s=10.0, timeout_s=60.0, tolerable_failures=2, modes=MODES
)
RESUME = ResumeSources(1)
FULL = StorageError("full")


class Job(CoordinatedJob):
    """In mode epoch."""

    def __init__(self, settings: CheckpointSettings = SETTINGS) -> None:
        super().__init__(settings)

    def trigger(self, checkpoint_id: int, now: float) -> TriggerCheckpoint:
        trigger, _ = self.checkpoints.on_trigger_timer(checkpoint_id, now)
        assert isinstance(trigger, TriggerCheckpoint)
        return trigger

    def acknowledge(self, checkpoint_id: int, now: float) -> None:
        assert self.checkpoints.on_acknowledged(acknowledged(checkpoint_id, SOURCE), now) == []
        [store] = self.checkpoints.on_acknowledged(acknowledged(checkpoint_id, SINK), now)
        assert isinstance(store, StoreManifest)

    def complete(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        self.acknowledge(checkpoint_id, now)
        return self.checkpoints.on_manifest_stored(checkpoint_id, now)

    def ask(self, now: float, afterwards: Afterwards, mode: str = "epoch") -> list[JobCommand]:
        request = SavepointRequest(7, mode, None, afterwards)
        return self.savepoints.add(request) or self.checkpoints.on_savepoint_requested(now)


def next_at(checkpoint_id: int, at: float) -> SetTimer:
    return SetTimer(trigger_timer(checkpoint_id), at)


def test_sources_wait_behind_the_barrier_and_go_on_once_the_manifest_exists() -> None:
    job = Job()
    assert job.trigger(1, 10.0) == TriggerCheckpoint(1, Barrier(1, "epoch", 10.0), pause=True)
    job.acknowledge(1, 11.0)
    assert job.checkpoints.on_manifest_stored(1, 12.0)[0] == RESUME


@pytest.mark.parametrize(("ended", "next"), [(12.0, 22.0), (20.0, 30.0), (35.0, 60.0)])
def test_sources_read_between_two_checkpoints(ended: float, next: float) -> None:
    """For a whole interval, and for as long as the last one took: else they would hardly ever read."""
    job = Job()
    job.trigger(1, 10.0)
    assert job.complete(1, ended)[-1] == next_at(2, next)


def test_a_pause_that_is_asked_for_still_counts_from_the_end() -> None:
    job = Job(replace(SETTINGS, min_pause_s=15.0))
    job.trigger(1, 15.0)
    assert job.complete(1, 16.0)[-1] == next_at(2, 31.0)


def test_they_go_on_if_it_is_declined() -> None:
    job = Job()
    job.trigger(1, 10.0)
    commands = job.checkpoints.on_declined(declined(1, SINK), 12.0)
    assert commands[:2] == [AbortCheckpoint(1, 1), RESUME]
    assert commands[-1] == next_at(2, 22.0)


def test_they_go_on_if_it_takes_too_long() -> None:
    job = Job()
    job.trigger(1, 10.0)
    assert job.checkpoints.on_expired(1, 70.0)[:2] == [AbortCheckpoint(1, 1), RESUME]


def test_they_go_on_if_it_cannot_be_stored() -> None:
    job = Job()
    job.trigger(1, 10.0)
    job.acknowledge(1, 11.0)
    refused = ManifestRefused(1, FULL)
    assert job.checkpoints.on_manifest_refused(refused, 12.0)[0] == RESUME


def test_they_wait_at_every_checkpoint_of_a_group_that_is_its_last() -> None:
    job = Job(replace(SETTINGS, modes={"epoch": Epoch(group=3)}))
    now, waited = 0.0, []
    for checkpoint_id in range(1, 7):
        now += 10.0
        waited.append(job.trigger(checkpoint_id, now).pause)
        now += 1.0
        resumed = RESUME in job.complete(checkpoint_id, now)
        assert resumed == waited[-1]
        now -= 0.0 if resumed else 1.0
    assert waited == [False, False, True, False, False, True]


def test_a_mode_of_another_package_holds_them_as_well() -> None:
    class Odd(Aligned):
        name: ClassVar[str] = "odd"

        def holds_sources(self, checkpoint_id: int) -> bool:
            return checkpoint_id % 2 == 1

    job = Job(replace(SETTINGS, mode="odd", modes={"odd": Odd()}))
    assert job.trigger(1, 10.0).pause
    assert job.complete(1, 10.0)[0] == RESUME
    assert not job.trigger(2, 20.0).pause


@pytest.mark.parametrize(
    "mode", [name for name in MODES if name != "epoch" and not isinstance(MODES[name], HasFamily)]
)
def test_no_other_mode_sends_sources_a_word_about_it(mode: str) -> None:
    job = Job(replace(SETTINGS, mode=mode))
    assert not job.trigger(1, 10.0).pause
    assert RESUME not in job.complete(1, 11.0)
    job.trigger(2, 20.0)
    assert RESUME not in job.checkpoints.on_declined(declined(2, SINK), 21.0)


def test_a_savepoint_of_another_mode_holds_no_sources() -> None:
    job = Job()
    [trigger, _] = job.ask(4.0, Afterwards.GO_ON, mode="unaligned")
    assert isinstance(trigger, TriggerCheckpoint)
    assert not trigger.pause
    assert RESUME not in job.complete(1, 5.0)


def test_sources_go_on_before_a_savepoint_that_has_waited_begins() -> None:
    job = Job()
    job.trigger(1, 10.0)
    assert job.ask(11.0, Afterwards.GO_ON) == []
    commands = job.complete(1, 12.0)
    assert commands[0] == RESUME
    assert commands[-2] == TriggerCheckpoint(1, Barrier(2, "epoch", 12.0, savepoint=True), True)
    assert commands[-1] == SetTimer(Timer(TimerKind.EXPIRE, 2), 72.0)


def test_a_savepoint_with_which_the_job_stops_keeps_them_waiting() -> None:
    job = Job()
    job.ask(4.0, Afterwards.STOP)
    assert RESUME not in job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 6.0)
    not_copied = SavepointNotPublished(1, FULL, None)
    assert job.checkpoints.on_savepoint_not_published(not_copied, 7.0)[0] == RESUME


def test_a_stop_that_fails_lets_them_go_on_once() -> None:
    job = Job()
    job.ask(4.0, Afterwards.STOP)
    assert job.checkpoints.on_declined(declined(1, SINK), 5.0).count(RESUME) == 1


def test_a_savepoint_that_cannot_be_copied_leaves_those_alone_that_wait_for_another_checkpoint() -> (
    None
):
    job = Job()
    job.ask(4.0, Afterwards.GO_ON)
    job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 6.0)
    job.trigger(2, 15.0)
    not_copied = SavepointNotPublished(1, FULL, None)
    assert RESUME not in job.checkpoints.on_savepoint_not_published(not_copied, 16.0)
