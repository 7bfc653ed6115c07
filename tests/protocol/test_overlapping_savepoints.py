"""Savepoints that overlap with checkpoints and with each other: when they begin, and who is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from minirt.protocol.job_events import (
    AnswerSavepoint,
    CleanUp,
    JobCommand,
    PublishSavepoint,
    SavepointPublished,
    SetTimer,
)
from minirt.protocol.savepoint_requests import Afterwards
from minirt.protocol.subtask_commands import (
    AbortCheckpoint,
    DrainSources,
    ResumeSources,
    TriggerCheckpoint,
)
from tests.protocol.overlapping import DRAIN, SETTINGS, STOP, Job, begun, next_at, two_under_way
from tests.protocol.parts import SINK, SOURCE, declined, handles, with_state


def answers(commands: Sequence[JobCommand]) -> dict[int, bool]:
    """Which requests are answered, and whether with a savepoint."""
    told = [command for command in commands if isinstance(command, AnswerSavepoint)]
    return {answer.request_id: answer.savepoint is not None for answer in told}


def test_a_savepoint_begins_beside_a_checkpoint_and_a_checkpoint_beside_a_savepoint() -> None:
    job = Job()
    job.trigger(1, 10.0)
    assert job.ask(7, 12.0) == begun(2, 12.0, 1, savepoint=True)
    assert job.complete(1, 13.0)[-1] == next_at(3, 20.0)
    assert job.trigger(3, 20.0) == begun(3, 20.0, 2)
    assert job.under_way == [2, 3]


def test_savepoints_overlap_with_each_other_and_each_is_answered() -> None:
    job = Job()
    assert job.ask(7, 4.0) == [*begun(1, 4.0, None, savepoint=True), next_at(2, 10.0)]
    assert job.ask(8, 5.0) == begun(2, 5.0, 1, savepoint=True)
    assert job.ask(9, 6.0) == []
    job.whole(1, 7.0, handles(1))
    job.whole(2, 7.0, handles(2))
    assert job.stored(1, 8.0)[-2:] == begun(3, 8.0, 2, savepoint=True)
    job.stored(2, 8.0)
    publish = job.checkpoints.on_committed(2, 9.0)
    assert [(type(each), each.manifest.checkpoint_id) for each in publish] == [  # type: ignore[union-attr]
        (PublishSavepoint, 1),
        (PublishSavepoint, 2),
    ]
    published = job.checkpoints.on_savepoint_published
    assert answers(published(SavepointPublished(2, "/there"), 9.0)) == {8: True}
    assert answers(published(SavepointPublished(1, "/there"), 9.0)) == {7: True}
    job.complete(3, 10.0)
    job.checkpoints.on_committed(3, 10.0)
    assert answers(published(SavepointPublished(3, "/there"), 10.0)) == {9: True}


def test_a_savepoint_that_fails_is_answered_alone() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.ask(8, 5.0)
    job.hear(1, SOURCE, 6.0)
    commands = job.checkpoints.on_declined(declined(2, SOURCE), 6.0)
    assert commands[0] == AbortCheckpoint(1, 2, spared=(1,))
    assert answers(commands) == {8: False}
    assert ResumeSources(1) not in commands
    job.hear(1, SINK, 7.0)
    job.stored(1, 7.0)
    assert job.savepoints.uncommitted == {1}


def test_a_savepoint_whose_barriers_overtake_waits_for_all_and_holds_up_the_next() -> None:
    job = two_under_way()
    assert job.ask(7, 21.0, "unaligned") == []
    assert isinstance(job.complete(1, 30.0)[-1], CleanUp)
    assert job.trigger(3, 30.0) == []
    commands = job.complete(2, 31.0)
    assert commands[-2:] == begun(3, 31.0, None, mode="unaligned", savepoint=True)
    assert job.trigger(4, 45.0) == []
    assert job.complete(3, 46.0)[-1] == next_at(4, 46.0)


@pytest.mark.parametrize("afterwards", [STOP, DRAIN])
def test_a_savepoint_that_ends_the_job_waits_for_all_and_is_alone(afterwards: Afterwards) -> None:
    job = two_under_way()
    assert job.ask(7, 21.0, "aligned", afterwards) == []
    job.complete(1, 22.0)
    last = job.complete(2, 23.0)[-1]
    assert isinstance(last, DrainSources if afterwards is DRAIN else SetTimer)
    assert job.ask(8, 24.0) == []
    assert job.under_way == ([] if afterwards is DRAIN else [3])


def test_a_savepoint_that_ends_the_job_waits_for_the_copies_of_others() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 5.0)
    assert job.ask(8, 6.0, "aligned", STOP) == []
    commands = job.checkpoints.on_savepoint_published(SavepointPublished(1, "/there"), 7.0)
    assert isinstance(commands[1], TriggerCheckpoint)
    assert commands[1].pause


def test_the_files_of_all_that_are_still_to_be_copied_are_kept() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.ask(8, 5.0)
    for id in (1, 2):
        for subtask in (SOURCE, SINK):
            job.checkpoints.on_acknowledged(with_state(id, subtask), 6.0)
    assert kept(job.stored(1, 7.0)) == {1, 2}
    assert kept(job.stored(2, 7.0)) == {1, 2}


def test_the_files_of_a_savepoint_that_is_being_stored_are_kept_from_an_earlier_clean_up() -> None:
    """Storage may have the manifest of a later checkpoint by the time it cleans up."""
    job = Job(replace(SETTINGS, max_concurrent=3))
    job.trigger(1, 10.0)
    job.ask(7, 11.0)
    job.trigger(3, 20.0)
    for id in (1, 2, 3):
        for subtask in (SOURCE, SINK):
            job.checkpoints.on_acknowledged(with_state(id, subtask), 21.0)
    assert kept(job.stored(1, 22.0)) == {2}


def kept(commands: Sequence[JobCommand]) -> set[int]:
    """The checkpoints whose files a clean-up spares."""
    [clean_up] = [command for command in commands if isinstance(command, CleanUp)]
    return {key.checkpoint_id for key in clean_up.needed}
