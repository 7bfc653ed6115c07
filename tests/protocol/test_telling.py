"""Sources are told how far they are stored: behind the manifest, until it succeeds once."""

from __future__ import annotations

import pytest

from minirt.errors import ConfigurationError, JobFailedError, SinkDataError, SupersededError
from minirt.protocol.job_events import SetTimer, Timer, TimerKind
from minirt.protocol.source_offsets import SourceOffsets, SourcesNotTold, TellSources
from minirt.protocol.telling import SourceTelling

OFFSETS = (SourceOffsets("numbers", {"a": 3}),)
LATER = (SourceOffsets("numbers", {"a": 5}),)
DOWN = OSError("no answer")


def test_nobody_is_told_of_nothing() -> None:
    assert SourceTelling().on_stored(1, ()) == []


def test_a_failure_is_tried_again_after_a_growing_pause() -> None:
    telling = SourceTelling()
    assert telling.on_stored(1, OFFSETS) == [TellSources(1, OFFSETS)]
    pauses = []
    for _ in range(12):
        [command] = telling.on_not_told(SourcesNotTold(1, DOWN), 100.0)
        assert isinstance(command, SetTimer)
        pauses.append(command.at - 100.0)
        assert command.timer == Timer(TimerKind.TELL, 1)
        assert telling.on_timer(1) == [TellSources(1, OFFSETS)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    assert pauses[-1] == 30


def test_only_the_newest_offsets_are_told_again() -> None:
    telling = SourceTelling()
    telling.on_stored(1, OFFSETS)
    telling.on_not_told(SourcesNotTold(1, DOWN), 1.0)
    telling.on_stored(2, LATER)
    assert telling.on_timer(1) == []
    assert telling.on_not_told(SourcesNotTold(1, DOWN), 2.0) == []
    assert telling.on_timer(2) == [TellSources(2, LATER)]


def test_what_was_told_is_not_told_again() -> None:
    telling = SourceTelling()
    telling.on_stored(1, OFFSETS)
    telling.on_told(1)
    assert telling.on_timer(1) == []


@pytest.mark.parametrize(
    "error",
    [ConfigurationError("no"), SinkDataError("unique"), JobFailedError("no"), SupersededError()],
)
def test_errors_that_no_repetition_mends_are_errors_of_the_job(error: Exception) -> None:
    from minirt.protocol.job import COMMITS_NEVER

    assert isinstance(error, COMMITS_NEVER)
