"""Checkpoints of local snapshots under all faults, and mistakes planted into them that must be noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import minirt as rt
from examples.lazy_mode import Lazy
from minirt.errors import ConfigurationError
from minirt.modes.communication_induced import CommunicationInduced
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.families import local_id
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.lines import LineTracker, LocalCut
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.manifest import SinkHandles
from minirt.protocol.uncoordinated import Uncoordinated as UncoordinatedFamily
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.output import Outputs, Overtaken
from minirt.runtime.input.gate_input import GateInput
from minirt.runtime.subtask import checkpointing
from minirt.runtime.subtask.local_snapshots import ChannelLog, LocalLog
from minirt.testing import Faults, TransactionalSink, simulate
from minirt.testing.conformance.cases import draw_case, run_case
from minirt.testing.exploration.explore import explore
from tests.campaigns import sampled, seeds
from tests.simulation.counting import run_counting

Patch = pytest.MonkeyPatch
Search = Callable[[int], Sequence[str]]

SEEDS = 150
SMALL = Uncoordinated(jitter=0.5, log_bytes=2048)
"""Subtasks often wait for a line, and take snapshots that no clock asks for."""


def counting(seed: int) -> Sequence[str]:
    return run_counting(seed, mode=SMALL if seed % 2 else "uncoordinated", steps_max=30_000)


def random_jobs(seed: int) -> Sequence[str]:
    return run_case(draw_case(seed), SMALL if seed % 2 else Uncoordinated()).wrong


def staggered(seed: int) -> Sequence[str]:
    return run_case(draw_case(seed), Uncoordinated(stagger="1ms")).wrong


@pytest.mark.parametrize("search", [counting, random_jobs, staggered])
def test_nothing_is_lost_and_nothing_comes_twice(search: Search) -> None:
    for seed in range(sampled(12, 4)):
        assert search(seed) == []


def test_lines_hold_records_in_transit() -> None:
    found = [run_case(draw_case(seed), Uncoordinated()) for seed in range(sampled(6))]
    assert sum(run.cuts for run in found) > len(found)
    assert sum(run.in_flight for run in found) > 0


@pytest.mark.parametrize(("mode", "forces"), [(SMALL, False), (CommunicationInduced(), True)])
def test_only_communication_induced_snapshots_are_forced(
    mode: Uncoordinated, forces: bool, monkeypatch: Patch
) -> None:
    right, forced = LocalLog.add, []

    def add(log: LocalLog, *taken: Any) -> LocalCut:
        cut = right(log, *taken)
        forced.append(cut.forced)
        return cut

    monkeypatch.setattr(LocalLog, "add", add)
    for seed in range(sampled(4)):
        assert run_case(draw_case(seed), mode).wrong == []
    assert (sum(forced) > 0, len(forced) > sum(forced)) == (forces, True)


@dataclass(frozen=True)
class OneAhead(Lazy):
    """Barriers come where a subtask has all the snapshots that it may have ahead of the line."""

    def local_snapshots(self, interval_s: float) -> LocalSnapshots:
        return replace(super().local_snapshots(interval_s), waiting_max=1)


def of_an_endless_job(seed: int, mode: Uncoordinated = OneAhead()) -> Sequence[str]:
    env = rt.Environment(parallelism=2)
    numbers = env.source(rt.SequenceSource.endless(), uid="numbers").rebalance()
    numbers.map(lambda n: n, uid="same").sink(TransactionalSink(), uid="out")
    checkpointing = rt.Checkpointing("unused", interval="20ms", mode=mode)
    return simulate(
        env,
        seed=seed,
        checkpointing=checkpointing,
        faults=Faults.none(),
        checkpoints_max=10,
        steps_max=20_000,
    ).problems


def test_checkpoints_go_on_whatever_lies_ahead_of_the_line() -> None:
    for seed in range(sampled(8, 4)):
        assert not of_an_endless_job(seed)


def test_it_is_noticed_if_a_subtask_takes_no_more_snapshots_than_it_may(monkeypatch: Patch) -> None:
    right = LocalLog.is_due

    def is_due(log: LocalLog, now: float) -> bool:
        ahead = [snapshot for snapshot in log._snapshots if not snapshot.declined]
        return len(ahead) <= log._plan.waiting_max and right(log, now)

    monkeypatch.setattr(LocalLog, "is_due", is_due)
    assert_noticed(of_an_endless_job)


def assert_noticed(search: Search, first: int = 0) -> None:
    assert any(search(seed) for seed in seeds(SEEDS, first)), f"nobody noticed in {SEEDS} runs"


def test_a_slice_that_is_cut_at_the_wrong_side_of_the_snapshot(monkeypatch: Patch) -> None:
    right = ChannelLog.slice

    def cut(log: ChannelLog, start: int, number: int) -> list[Frame]:
        return right(log, start + 1, number)

    monkeypatch.setattr(ChannelLog, "slice", cut)
    assert_noticed(random_jobs)


def test_records_that_count_as_consumed_once_they_have_arrived(monkeypatch: Patch) -> None:
    monkeypatch.setattr(GateInput, "queued_frames", lambda input, channel: 0)
    assert_noticed(random_jobs)


def test_a_receiver_that_needs_one_snapshot_too_few(monkeypatch: Patch) -> None:
    right = ChannelLog.need
    monkeypatch.setattr(ChannelLog, "need", lambda log, taken: max(0, right(log, taken) - 1))
    assert_noticed(random_jobs)


def test_a_line_that_takes_the_newest_snapshots_there_are(monkeypatch: Patch) -> None:
    def advance(tracker: LineTracker, subtask: object) -> bool:
        ahead = tracker._ahead[subtask]  # type: ignore[index]
        if not ahead:
            return False
        tracker._line[subtask] = ahead.popleft()  # type: ignore[index]
        return True

    monkeypatch.setattr(LineTracker, "_advance", advance)
    assert_noticed(random_jobs)


def test_output_that_marks_overtake_and_nobody_keeps(monkeypatch: Patch) -> None:
    right = Outputs.mark

    def mark(outputs: Outputs, number: int, index: int | None = None) -> list[Overtaken]:
        right(outputs, number, index)
        return []

    monkeypatch.setattr(Outputs, "mark", mark)
    assert_noticed(random_jobs)


def test_a_commit_at_the_local_snapshot(monkeypatch: Patch) -> None:
    right = UncoordinatedFamily.on_whole

    def on_whole(family: UncoordinatedFamily, checkpoint_id: int) -> list[SinkHandles]:
        for own in family._reported.values():
            own.owed = [(0, held) for _, held in own.owed]
        return right(family, checkpoint_id)

    monkeypatch.setattr(UncoordinatedFamily, "on_whole", on_whole)
    assert_noticed(random_jobs)


def test_ids_that_a_later_generation_gives_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(checkpointing, "local_id", lambda generation, number: local_id(1, number))
    assert_noticed(random_jobs, first=21)


def test_snapshots_that_are_deleted_by_age(monkeypatch: Patch) -> None:
    right = UncoordinatedFamily.on_local

    def on_local(
        family: UncoordinatedFamily, event: SnapshotAcknowledged | SnapshotDeclined, now: float
    ) -> None:
        right(family, event, now)
        own = family._reported[event.subtask]
        own.stored = {number: own.stored[number] for number in [*own.stored][-1:]}

    def missed(seed: int) -> Sequence[str]:
        try:
            return random_jobs(seed)
        except KeyError as error:
            return [f"the coordinator has deleted snapshot {error}"]

    monkeypatch.setattr(UncoordinatedFamily, "on_local", on_local)
    assert_noticed(missed)


def numbers(env: rt.Environment, sink: TransactionalSink) -> rt.Stream:
    stream = env.source(rt.SequenceSource(400, splits=2), uid="numbers").rebalance()
    stream.map(lambda n: n, uid="same").sink(sink, uid="out")
    return stream


def test_a_job_with_broadcast_state_is_refused_by_name() -> None:
    class Rules(rt.BroadcastProcess):
        def process(self, record: int, ctx: rt.KeyedContext) -> list[int]:
            return [record]

        def process_broadcast(self, record: int, ctx: rt.ProcessContext) -> None:
            """Nothing to do."""

    env = rt.Environment(parallelism=2)
    rules = env.source(rt.SequenceSource(4), uid="rules").broadcast()
    keyed = env.source(rt.SequenceSource(4), uid="numbers").key_by(lambda n: n)
    keyed.connect(rules).process(Rules(), uid="ruled").sink(TransactionalSink(), uid="out")
    checkpointing = rt.Checkpointing("simulated://", mode="uncoordinated")
    with pytest.raises(
        ConfigurationError, match=r"uncoordinated cannot .* of ruled, .*broadcast state"
    ):
        simulate(env, seed=1, checkpointing=checkpointing)


def test_an_exploration_refuses_a_mode_that_goes_by_a_clock() -> None:
    env = rt.Environment()
    numbers(env, TransactionalSink())
    with pytest.raises(ConfigurationError, match=r"uncoordinated takes snapshots by the clocks"):
        explore(env, "uncoordinated", lambda rows: None)
