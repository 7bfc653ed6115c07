"""What a job that nobody observes tells of its troubles, and where it may keep checkpoints."""

from __future__ import annotations

import logging

import pytest

import minirt as rt


@pytest.fixture
def stumble(tmp_path):
    """A function that raises the first time it is ever called."""
    stumbled = tmp_path / "stumbled"

    def function(record):
        if not stumbled.exists():
            stumbled.touch()
            raise ValueError("a stone in the way")
        return record

    return function


def test_a_restart_is_logged_with_its_reason(stumble, tmp_path, caplog):
    env = rt.Environment("walk")
    env.source(rt.SequenceSource(3)).map(stumble).sink(rt.DiscardSink())
    with caplog.at_level(logging.WARNING, logger="minirt"):
        result = env.execute(
            checkpointing=rt.Checkpointing(tmp_path / "checkpoints"), runner="inline"
        )
    assert result.restarts == 1
    [restart] = [r.getMessage() for r in caplog.records if "restarts in" in r.getMessage()]
    assert restart.startswith(
        "job 'walk' restarts in 0.05 s: operator map: function (uid map-function) failed"
    )
    assert "a stone in the way" in restart


def test_a_failed_checkpoint_is_logged_with_its_reason(tmp_path, caplog):
    env = rt.Environment("walk")
    numbers = env.source(rt.SequenceSource(3)).key_by(lambda number: number)
    numbers.reduce(lambda total, number: total + number).sink(rt.DiscardSink())
    checkpointing = rt.Checkpointing("memory://refused", tolerable_failures=0, timeout="1us")
    with caplog.at_level(logging.WARNING, logger="minirt"), pytest.raises(rt.JobFailedError):
        env.execute(checkpointing=checkpointing, runner="inline", restart=rt.Restart.none())
    assert "job 'walk': checkpoint 1 failed: expired after 1e-06 s" in caplog.text


def test_a_path_object_says_where_checkpoints_are(tmp_path):
    env = rt.Environment()
    env.source(rt.SequenceSource(3)).sink(rt.DiscardSink())
    env.execute(checkpointing=rt.Checkpointing(tmp_path / "here"), runner="inline")
    assert list((tmp_path / "here" / "manifests").iterdir()) != []
