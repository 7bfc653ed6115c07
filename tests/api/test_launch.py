"""Environments with settings of their own, and those that a launcher loads."""

from __future__ import annotations

import pytest

import minirt as rt
from minirt.api.launch import loading


def numbers(env: rt.Environment) -> rt.CollectSink:
    sink = rt.CollectSink()
    env.source(rt.SequenceSource(3)).map(lambda n: n + 1, uid="plus").sink(sink)
    return sink


def test_a_run_takes_the_settings_of_its_environment_unless_given_others(tmp_path):
    env = rt.Environment(checkpointing=rt.Checkpointing(tmp_path / "a"))
    numbers(env)
    env.execute(runner="inline")
    env.execute(runner="inline", checkpointing=rt.Checkpointing(tmp_path / "b"))
    assert (tmp_path / "a/manifests").exists()
    assert (tmp_path / "b/manifests").exists()


def test_wrong_settings_are_refused_when_the_environment_is_made():
    with pytest.raises(rt.ConfigurationError, match="checkpointing: expected Checkpointing"):
        rt.Environment(checkpointing="here")  # type: ignore[arg-type]


def test_a_launcher_sets_the_default_parallelism_and_not_what_operators_say():
    with loading(3):
        env = rt.Environment(parallelism=2)
        stream = env.source(rt.SequenceSource(3), uid="numbers", parallelism=1)
        stream.map(lambda n: n, uid="same").sink(rt.DiscardSink(), uid="out")
    operators = env.graph().operators
    assert {uid: node.parallelism for uid, node in operators.items()} == {
        "numbers": 1,
        "same": 3,
        "out": 3,
    }


def test_while_a_launcher_loads_nothing_runs():
    env = rt.Environment()
    sink = numbers(env)
    for run in (env.execute, env.start):
        with loading(None), pytest.raises(rt.ConfigurationError, match="while it is loaded"):
            run()
    env.execute(runner="inline")
    assert sink.rows == [1, 2, 3]
