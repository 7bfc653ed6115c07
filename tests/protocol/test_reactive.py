"""The parallelism that follows slots: exact cases, without any host."""

from __future__ import annotations

import math

import pytest

from minirt.errors import ConfigurationError, WorkerLostError
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    Deploy,
    GenerationFailed,
    GenerationPrepared,
    HandlesCommitted,
    JobCommand,
    JobStatus,
    ManifestStored,
    PrepareGeneration,
    StoreManifest,
    Submitted,
    SubtaskStarted,
    TimerFired,
    TimerKind,
    WorkerFailed,
)
from minirt.protocol.reactive import Reactive, ReactiveSettings
from minirt.protocol.reasons import GenerationFailureReason
from minirt.protocol.restart_commands import AnnounceRestart
from minirt.protocol.slots import AwaitSlots, SlotsAwaited, SlotsChanged
from minirt.protocol.topology import Topology, VertexFacts
from minirt.protocol.workers import Patience
from tests.protocol.parts import SOURCE, VERTICES, acknowledged, trigger_timer
from tests.protocol.test_job import SETTINGS, TWO_RESTARTS, fired

REFUSED = ConfigurationError("it would lose an order")
SETTLE_S, PATIENCE_S, PER_S = 10.0, 20.0, 100.0


def reactive(wanted: int = 4, least: int = 1, most: int = 8, rescales: int = 2) -> Reactive:
    return Reactive(ReactiveSettings(wanted, least, most, SETTLE_S, PATIENCE_S, rescales, PER_S))


def running_with(slots: int, **bounds: int) -> Reactive:
    """That of a job which began with so many slots at time 0."""
    one = reactive(**bounds)
    one.on_slots(slots, 0.0)
    begun(one, slots)
    one.on_prepared()
    return one


def begun(one: Reactive, slots: int) -> int | None:
    """The parallelism of the generation that begins with so many slots."""
    one.begin({})
    (prepare,) = one.on_awaited(slots, {})
    assert isinstance(prepare, PrepareGeneration)
    return prepare.parallelism


@pytest.mark.parametrize(("slots", "parallelism"), [(1, 1), (3, 3), (4, 4), (7, 7), (9, 8)])
def test_a_generation_has_as_many_subtasks_as_there_are_slots_up_to_a_bound(
    slots: int, parallelism: int
) -> None:
    assert begun(reactive(), slots) == parallelism


def test_a_job_waits_for_what_it_states_and_later_for_what_it_had() -> None:
    one = reactive(wanted=4, least=2)
    assert one.begin({}) == AwaitSlots(enough=4, least=2)
    begun(one, 3)
    assert one.begin({}) == AwaitSlots(enough=3, least=2)
    begun(one, 6)
    assert one.begin({}) == AwaitSlots(enough=6, least=2)


def test_only_a_job_that_has_run_goes_on_with_fewer_before_the_cluster_gives_up() -> None:
    one = reactive(wanted=4)
    begun(one, 2)
    assert one.begin({}) == AwaitSlots(2, 1, math.inf)
    begun(one, 2)
    one.on_prepared()
    assert one.begin({}) == AwaitSlots(2, 1, PATIENCE_S)


def test_a_job_that_runs_with_less_than_the_least_does_not_wait_for_more() -> None:
    """It states 1 itself, and has been allowed that."""
    assert reactive(wanted=1, least=3).begin({}) == AwaitSlots(enough=1, least=1)


@pytest.mark.parametrize(
    ("came_at", "now", "grows"),
    [(20.0, 20.0, False), (20.0, 29.9, False), (20.0, 30.0, True), (20.0, 500.0, True)],
)
def test_slots_must_have_stayed_for_a_while(came_at: float, now: float, grows: bool) -> None:
    one = running_with(2)
    one.on_slots(4, came_at)
    assert one.grows(now) is grows


def test_each_change_of_the_slots_begins_the_while_anew_and_the_same_number_does_not() -> None:
    one = running_with(2)
    one.on_slots(3, 20.0)
    one.on_slots(4, 28.0)
    assert not one.grows(31.0)
    one.on_slots(4, 33.0)
    assert one.grows(38.0)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_job_never_shrinks_by_itself(slots: int) -> None:
    one = running_with(2)
    one.on_slots(slots, 20.0)
    assert not one.grows(100.0)


def test_slots_beyond_the_most_are_spares() -> None:
    one = running_with(8)
    one.on_slots(12, 20.0)
    assert not one.grows(100.0)


def test_a_job_grows_only_so_often_in_a_time() -> None:
    one, slots = running_with(1, rescales=2), 1
    grown = []
    for now in range(20, 400, 20):
        slots += 1
        one.on_slots(slots, now - SETTLE_S)
        if one.grows(now):
            one.on_grown(now)
            begun(one, slots)
            one.on_prepared()
            grown.append(now)
    assert grown == [20, 40, 120, 140]  # By then there are eight, the most.


def test_what_was_refused_falls_back_and_is_not_tried_again() -> None:
    one = running_with(2)
    one.on_slots(4, 20.0)
    assert one.grows(50.0)
    begun(one, 4)
    assert one.on_not_prepared(REFUSED, True, {}) == [PrepareGeneration({}, 2)]
    one.on_prepared()
    assert not one.grows(100.0)
    one.on_slots(5, 100.0)
    assert one.grows(120.0)
    begun(one, 5)
    one.on_prepared()
    one.on_slots(3, 130.0)
    begun(one, 3)
    one.on_prepared()
    one.on_slots(4, 140.0)
    assert one.grows(160.0)  # It comes from another parallelism than before.


def test_there_is_nothing_to_fall_back_to_before_the_job_ran() -> None:
    one = reactive()
    begun(one, 2)
    assert one.on_not_prepared(REFUSED, True, {}) == []
    running = running_with(2)
    begun(running, 2)
    assert running.on_not_prepared(REFUSED, True, {}) == []


def test_it_falls_back_to_what_ran_last() -> None:
    one = running_with(2)
    begun(one, 4)
    one.on_prepared()
    begun(one, 6)
    assert one.on_not_prepared(REFUSED, True, {}) == [PrepareGeneration({}, 4)]


def test_slots_that_come_behind_a_failure_begin_nothing() -> None:
    """Nobody waits for them any more: the restart strategy says when somebody does."""
    one = running_with(2)
    one.begin({})
    assert one.on_not_prepared(WorkerLostError("no hosts"), False, {}) == []
    assert one.on_awaited(2, {}) == []


@pytest.mark.parametrize(("error", "fatal"), [(WorkerLostError("gone"), True), (REFUSED, False)])
def test_only_a_refusal_falls_back(error: Exception, fatal: bool) -> None:
    one = running_with(2)
    begun(one, 4)
    assert one.on_not_prepared(error, fatal, {}) == []


# In the life of a job.


def topology(parallelism: int) -> Topology:
    return Topology((VertexFacts(0, "only", (), parallelism, 128),))


def prepared(generation: int, parallelism: int) -> GenerationPrepared:
    return GenerationPrepared(generation, None, 1, topology=topology(parallelism))


def job(follows: Reactive) -> JobProtocol:
    return JobProtocol(
        name="job",
        vertices=VERTICES,
        subtasks=frozenset(),
        checkpoints=SETTINGS,
        restarts=TWO_RESTARTS.start(),
        patience=Patience(connect_s=30.0, start_s=40.0, silence_s=8.0),
        parallelism=follows,
    )


def started(protocol: JobProtocol, generation: int, parallelism: int, now: float) -> None:
    protocol.handle(prepared(generation, parallelism), now)
    for index in range(parallelism):
        assert protocol.status is JobStatus.DEPLOYING
        protocol.handle(SubtaskStarted(generation, SubtaskId(0, index)), now)
    assert protocol.status is JobStatus.RUNNING


def test_a_job_prepares_once_it_knows_its_slots_and_restarts_with_fewer() -> None:
    protocol = job(reactive(wanted=2))
    assert protocol.handle(Submitted(), 0.0) == [AwaitSlots(2, 1)]
    assert protocol.handle(SlotsAwaited(2), 1.0) == [PrepareGeneration({}, 2)]
    assert protocol.handle(SlotsAwaited(2), 1.5) == []
    started(protocol, 1, 2, 2.0)
    protocol.handle(WorkerFailed(1, WorkerLostError("a host is gone")), 3.0)
    assert protocol.status is JobStatus.WAITING
    assert protocol.handle(fired(TimerKind.RESTART, 1), 8.0) == [AwaitSlots(2, 1, PATIENCE_S)]
    assert protocol.handle(SlotsAwaited(1), 70.0) == [PrepareGeneration({}, 1)]
    started(protocol, 2, 1, 71.0)


def test_a_job_that_gets_no_slots_restarts_as_its_strategy_says_and_then_fails() -> None:
    protocol = job(reactive(wanted=2))
    protocol.handle(Submitted(), 0.0)
    none = GenerationFailed(WorkerLostError("no hosts"), fatal=False)
    for _ in range(2):
        protocol.handle(none, 1.0)
        assert protocol.status is JobStatus.WAITING
        assert protocol.handle(fired(TimerKind.RESTART, 0), 2.0) == [AwaitSlots(2, 1)]
    protocol.handle(none, 3.0)
    assert protocol.status is JobStatus.FAILED


def test_a_refused_parallelism_is_followed_by_the_one_before() -> None:
    protocol = job(reactive(wanted=2))
    protocol.handle(Submitted(), 0.0)
    protocol.handle(SlotsAwaited(2), 0.0)
    started(protocol, 1, 2, 0.0)
    protocol.handle(WorkerFailed(1, WorkerLostError("gone")), 1.0)
    protocol.handle(fired(TimerKind.RESTART, 1), 8.0)
    protocol.handle(SlotsAwaited(1), 9.0)
    refused = GenerationFailed(REFUSED, fatal=True)
    assert protocol.handle(refused, 9.0) == [PrepareGeneration({}, 2)]
    deployed = protocol.handle(prepared(2, 2), 10.0)
    assert any(isinstance(command, Deploy) for command in deployed)
    protocol.handle(WorkerFailed(2, WorkerLostError("gone")), 11.0)
    protocol.handle(fired(TimerKind.RESTART, 2), 20.0)
    protocol.handle(SlotsAwaited(2), 21.0)
    protocol.handle(refused, 21.0)
    assert protocol.status is JobStatus.FAILED


def test_a_job_grows_behind_a_checkpoint_and_that_is_no_failure() -> None:
    protocol = job(reactive(wanted=2))
    protocol.handle(Submitted(), 0.0)
    protocol.handle(SlotsChanged(1), 0.0)
    protocol.handle(SlotsAwaited(1), 0.0)
    started(protocol, 1, 1, 0.0)
    assert protocol.handle(SlotsChanged(2), 2.0) == []
    assert not restarts(complete_one(protocol, 1, 10.0))
    (announced,) = restarts(grown := complete_one(protocol, 2, 20.0))
    assert announced.failure.reason is GenerationFailureReason.GROWS
    assert grown[-1] == AwaitSlots(1, 1, PATIENCE_S)
    assert protocol.restarts == 1
    assert protocol.handle(SlotsAwaited(2), 20.0) == [PrepareGeneration({}, 2)]
    started(protocol, 2, 2, 21.0)


def test_how_often_a_job_grows_is_counted_where_it_does() -> None:
    protocol = job(reactive(wanted=1, rescales=2))
    protocol.handle(Submitted(), 0.0)
    protocol.handle(SlotsAwaited(1), 0.0)
    now = 0.0
    for generation in (1, 2, 3):
        started(protocol, generation, 1, now)  # One subtask each time, so that one acknowledges.
        protocol.handle(SlotsChanged(generation + 1), now)
        now += SETTLE_S
        assert len(restarts(complete_one(protocol, 1, now))) == (generation < 3)
        protocol.handle(SlotsAwaited(generation + 1), now)


def test_a_manifest_says_at_which_parallelism_its_generation_ran() -> None:
    protocol = job(reactive(wanted=1))
    protocol.handle(Submitted(), 0.0)
    protocol.handle(SlotsAwaited(2), 0.0)
    started(protocol, 1, 2, 0.0)
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    for index in range(2):
        stored = protocol.handle(acknowledged(1, SubtaskId(0, index)), 10.0)
    (store,) = [one for one in stored if isinstance(one, StoreManifest)]
    assert [vertex.parallelism for vertex in store.manifest.vertices] == [2]


def complete_one(protocol: JobProtocol, checkpoint_id: int, now: float) -> list[JobCommand]:
    """What follows from the manifest of a checkpoint of a job with one subtask."""
    protocol.handle(TimerFired(trigger_timer(checkpoint_id)), now)
    protocol.handle(acknowledged(checkpoint_id, SOURCE), now)
    commands = protocol.handle(ManifestStored(checkpoint_id), now)
    return [*commands, *protocol.handle(HandlesCommitted(checkpoint_id), now)]


def restarts(commands: list[JobCommand]) -> list[AnnounceRestart]:
    return [one for one in commands if isinstance(one, AnnounceRestart)]
