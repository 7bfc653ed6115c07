"""Whole jobs against the oracle: every operator, every way of placing and connecting subtasks."""

from __future__ import annotations

from typing import Any

import pytest

from minirt import CollectSink, Environment, JobStatus, Options
from tests.runtime.jobs import CASES, Case, Numbers, bag, build

COUNT = 400


def run(cases: list[Case], parallelism: int, **settings: Any) -> None:
    """Run the cases as one job, and compare every output with the oracle's."""
    env = Environment("whole", parallelism=parallelism)
    sinks = {
        (case, name): (CollectSink(), stream)
        for case in cases
        for name, stream in build(case, env, COUNT).items()
    }
    for (case, name), (sink, stream) in sinks.items():
        stream.sink(sink, uid=f"{case.name}-{name}")
    result = env.execute(**settings)
    assert result.status is JobStatus.FINISHED
    assert result.restarts == 0
    for (case, name), (sink, _) in sinks.items():
        expected = case.expected(range(COUNT), parallelism)[name]
        assert bag(sink.rows) == bag(expected), f"{case.name}: {name}"


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_a_job_puts_out_what_the_oracle_says_inline(name, parallelism):
    run([CASES[name]], parallelism, runner="inline")


@pytest.mark.processes
@pytest.mark.parametrize("name", CASES)
def test_a_job_puts_out_what_the_oracle_says_with_a_process_for_each_subtask(name):
    run([CASES[name]], parallelism=2)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("parallelism", "options"),
    [
        (1, Options(placement="slots")),
        (2, Options(placement="slots", transport="tcp")),
        (3, Options(placement="slots", workers=1)),
        (4, Options(placement="slots", workers=3)),
        (5, Options(placement="slots", buffer_timeout=0)),
    ],
    ids=["1", "2-tcp", "3-in-one-worker", "4-in-three-workers", "5-unbuffered"],
)
def test_all_operators_at_once_put_out_what_the_oracle_says_in_slots(parallelism, options):
    run(list(CASES.values()), parallelism, options=options)


@pytest.mark.processes
def test_subtasks_in_processes_of_their_own_are_reached_over_tcp_as_well():
    run([CASES["keyed"], CASES["connected"]], 3, options=Options(transport="tcp"))


@pytest.mark.parametrize(
    "runner", ["inline", pytest.param("processes", marks=pytest.mark.processes)]
)
def test_what_does_not_parse_goes_to_the_side_output_of_its_source(runner):
    good, bad = CollectSink(), CollectSink()
    env = Environment(parallelism=2)
    numbers = env.source(Numbers(100, bad_every=10), uid="numbers")
    numbers.map(lambda n: {"n": n}).sink(good, uid="good")
    numbers.side_output("errors").rebalance().sink(bad, uid="bad")
    env.execute(runner=runner)
    assert bag(good.rows) == bag({"n": n} for n in range(100) if n % 10)
    assert bag(bad.rows) == bag(
        {"location": str(n), "text": "?", "error": "is bad"} for n in range(0, 100, 10)
    )
