"""Jobs whose parallelism follows the slots of agents that come and go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.operations.registry import Registry
from minirt.operations.running import LocalJob
from minirt.protocol.job_events import ENDED, JobStatus
from tests.campaigns import soaked
from tests.cluster.agents import Agent, Agents, PlayedCluster, agents_of
from tests.cluster.test_agents import finishes, running
from tests.runtime.campaign import write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import needs_proc, wait_until

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, needs_proc]

COUNT = 3_000
"""A quarter of a minute of records. The last ones come when the test lets the job go."""
QUICK = rt.Reactive(settle="200ms", patience="2s", rescales=20)
_LET_GO = "let-go"


def start(folder: Path, cluster: rt.HostCluster, count: int, **run: Any) -> rt.Job:
    env = rt.Environment("keyed", parallelism=2)
    outputs = build(CASES["keyed"], env, count, per_second=200.0, let_go=folder / _LET_GO)
    write_files(outputs, folder)
    mode = run.pop("mode", "aligned")
    return env.start(
        checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval="200ms", mode=mode),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(placement="slots"),
        cluster=cluster,
    )


def parallelism(job: rt.Job) -> int:
    """That of the keyed operator, by the figures of its subtasks; 0 while none have come."""
    by_operator = [len(operator.subtasks) for operator in job.figures.operators()]
    return max(by_operator, default=0)


def has(job: rt.Job, wanted: int) -> None:
    wait_until(
        lambda: (
            job.status in ENDED or (job.status is JobStatus.RUNNING and parallelism(job) == wanted)
        ),
        f"the job runs at parallelism {wanted}",
        90,
    )
    assert job.status is JobStatus.RUNNING


def workers(agents: Agents | list[Agent]) -> list[int]:
    return [len(agent.workers) for agent in (agents.all if isinstance(agents, Agents) else agents)]


@pytest.mark.parametrize("mode", ["unaligned", *soaked("aligned")])
def test_a_job_shrinks_when_a_host_is_gone_and_grows_when_it_comes_back(
    tmp_path: Path, mode: str
) -> None:
    cluster = PlayedCluster(slots=(1, 1), wait="5min", reactive=QUICK)
    job = start(tmp_path, cluster, COUNT, mode=mode)
    with agents_of(job) as agents:
        has(job, 2)
        lost, kept = agents.all
        lost.kill()
        agents.all.remove(lost)
        has(job, 1)
        assert job.restarts == 1
        assert len(kept.workers) == 1
        came = agents.add(1)
        has(job, 2)
        assert workers([kept, came]) == [1, 1]
        assert job.restarts == 2
        assert "parallelism grows" in str(job.figures.last_failure)
        (tmp_path / _LET_GO).touch()
        assert finishes(job, tmp_path, count=COUNT).restarts == 2
        described = {one["parallelism"] for one in job.description["vertices"]}
        assert described == {2}
    assert not list((tmp_path / "checkpoints" / "probes").glob("*"))


def test_a_job_grows_beyond_what_it_states_up_to_a_bound_and_begins_with_less(
    tmp_path: Path,
) -> None:
    reactive = rt.Reactive(settle="200ms", rescales=20, max_slots=3)
    job = start(tmp_path, PlayedCluster(slots=(1,), wait="25s", reactive=reactive), COUNT)
    with agents_of(job) as agents:
        has(job, 1)
        agents.add(4)
        has(job, 3)
        assert sum(workers(agents)) == 3
        (tmp_path / _LET_GO).touch()
        assert finishes(job, tmp_path, count=COUNT).restarts == 1


def test_below_the_least_a_job_waits_and_then_says_what_it_needs(tmp_path: Path) -> None:
    cluster = PlayedCluster(slots=(1,), wait="5s", min_slots=2, reactive=QUICK)
    job = start(tmp_path, cluster, 100)
    with agents_of(job), pytest.raises(rt.JobFailedError, match="it needs 2 slots, and hosts with"):
        job.wait(60)


def test_a_request_for_another_parallelism_is_refused(tmp_path: Path) -> None:
    job = start(tmp_path, PlayedCluster(slots=(2,), reactive=QUICK), 600)
    with agents_of(job):
        running(job)
        registry = Registry.of_user()
        (entry,) = [one for one in registry.entries() if one.pid == os.getpid()]
        with pytest.raises(rt.ConfigurationError, match="follows the slots of its hosts"):
            LocalJob(entry, registry).ask({"request": "rescale", "parallelism": 4}, 10)


# What has no effect is refused before anything starts.


@pytest.mark.parametrize(
    ("own", "run", "cluster", "why"),
    [
        (None, {"checkpointing": None}, {}, "reactive needs checkpointing"),
        (2, {}, {}, "reactive has no effect: all operators"),
        (None, {"options": rt.Options(placement="slots", workers=2)}, {}, "workers has no effect"),
        (
            None,
            {},
            {"reactive": rt.Reactive(max_slots=1)},
            "max_slots=1 is less than the parallelism",
        ),
        (
            None,
            {},
            {"reactive": rt.Reactive(max_slots=2), "min_slots": 2},
            "reactive has no effect: the parallelism can only be 2",
        ),
    ],
)
def test_what_cannot_follow_slots_is_refused(
    tmp_path: Path, own: int | None, run: dict[str, Any], cluster: dict[str, Any], why: str
) -> None:
    env = rt.Environment(parallelism=2)
    numbers = env.source(rt.SequenceSource(3), parallelism=own)
    numbers.key_by(bool).reduce(max, parallelism=own).sink(rt.DiscardSink(), parallelism=own)
    given = {"checkpointing": rt.Checkpointing(str(tmp_path)), **run}
    with pytest.raises(rt.ConfigurationError, match=why):
        env.start(cluster=PlayedCluster(**{"reactive": QUICK, **cluster}), **given)


def test_a_job_that_can_have_no_other_parallelism_is_refused(tmp_path: Path) -> None:
    env = rt.Environment(parallelism=2)
    stream = env.source(rt.SequenceSource(3), parallelism=2).forward()
    stream.map(str, name="text").sink(rt.DiscardSink())
    with pytest.raises(
        rt.ConfigurationError, match="cannot have another parallelism, such as 3: text"
    ):
        env.start(
            checkpointing=rt.Checkpointing(str(tmp_path)), cluster=PlayedCluster(reactive=QUICK)
        )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"settle": "soon"}, "Reactive: settle"),
        ({"rescales": 0}, "Reactive: rescales"),
        ({"patience": "long"}, "Reactive: patience"),
        ({"per": "0s"}, "Reactive: per must be positive"),
        ({"max_slots": 0}, "Reactive: max_slots"),
    ],
)
def test_bounds_that_cannot_work_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=why):
        rt.Reactive(**wrong)


def test_reactive_is_an_object_not_a_flag() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"reactive is a Reactive\(\), not True"):
        PlayedCluster(reactive=True)  # type: ignore[arg-type]
