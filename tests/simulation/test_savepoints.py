"""Users who ask for savepoints, stop jobs and start them again elsewhere: still exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.data.batch import Batch
from minirt.modes import MODES
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.job_events import CommitHandles, JobCommand, JobEvent
from minirt.protocol.manifest import Manifest
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.subtask_commands import ResumeSources, SubtaskCommand, TriggerCheckpoint
from minirt.protocol.trigger_times import TriggerTimes
from minirt.runtime.coordinator.storage_tasks import StorageTasks
from minirt.runtime.subtask.subtask import Subtask
from minirt.testing import Faults, Requests, SimulationResult, simulate
from minirt.testing.conformance.sources import NumberedSource
from tests.campaigns import modes, sampled, seeds
from tests.simulation.counting import EXPECTED, CountingJob, remembered_in

REQUESTS = Requests(savepoints=3, stops=2, drains=1)
RUNS = sampled(16, 2)
BUSY = 11
"""From this seed on requests of each kind come soon, and savepoints are taken."""

SEEDS = 200
"""Within so many each planted bug must be noticed."""

Patch = pytest.MonkeyPatch


def run(
    seed: int,
    mode: str = "aligned",
    faults: Faults | None = None,
    requests: Requests = REQUESTS,
    steps_max: int = 60_000,
) -> tuple[SimulationResult, list[str]]:
    """One simulation with few checkpoints kept, and what is wrong with it."""
    random = Random(f"savepoints {seed}")
    job = CountingJob([random.randint(1, 3) for _ in range(random.randint(1, 3))])
    result = job.run(
        seed, mode=mode, faults=faults, requests=requests, retain=1, steps_max=steps_max
    )
    return result, [*result.problems, *job.wrong()]


@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_a_job_that_is_stopped_and_started_elsewhere_puts_out_everything_once(mode: str) -> None:
    asked: Counter[str] = Counter()
    for seed in range(BUSY, BUSY + RUNS):
        result, wrong = run(seed, mode)
        assert wrong == [], f"seed {seed}"
        requests = [note for note in result.trace if ": asks coordinator" in note]
        asked.update(next(k for k in ("GO_ON", "STOP", "DRAIN") if k in note) for note in requests)
        asked["taken"] += len(result.savepoints)
    assert min(asked[kind] for kind in ("GO_ON", "STOP", "DRAIN", "taken")) > RUNS / 4


def test_at_least_once_loses_nothing() -> None:
    for seed in range(sampled(16)):
        job = CountingJob([2, 3])
        job.run(seed, mode="at_least_once", requests=REQUESTS).check()
        assert job.wrong(exactly_once=False) == [], f"seed {seed}"


def test_a_job_restored_from_any_copy_goes_on_exactly_once() -> None:
    restored = 0
    for seed in range(RUNS):
        result, _ = run(seed, "unaligned")
        for savepoint in result.savepoints:
            assert _put_out(savepoint, seed) == EXPECTED, f"seed {seed}"
            restored += 1
    assert restored > RUNS / 4


def _put_out(savepoint: Mapping[str, bytes], seed: int) -> Counter[Any]:
    """By the job that the savepoint was taken of until then, and by one that is restored from it."""
    job = CountingJob([Random(seed).randint(1, 3)])
    job.run(seed, mode="at_least_once", faults=Faults.none(), origin=savepoint).check()
    return remembered_in(savepoint) + Counter(record for record, _ in job.sink.rows)


class Window(rt.Sink):
    """Shows records as they are written."""

    shown: list[Any] = []

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _Pane()


class _Pane(rt.SinkWriter):
    def write(self, batch: Batch) -> None:
        Window.shown += batch.rows().records


def shown(seed: int) -> Counter[Any] | None:
    """What a sink without transactions shows if nothing fails; None where data was overtaken."""
    Window.shown = []
    env = rt.Environment(parallelism=2)
    env.source(NumberedSource("n", 3, 7), uid="n").rebalance().sink(Window(), uid="out")
    requests = Requests(stops=2, drains=1)
    result = simulate(env, seed=seed, faults=Faults.none(), requests=requests).check()
    overtaking = [name for name, mode in MODES.items() if mode.exactly_once and name != "aligned"]
    overtaken = any(
        "asks" in note and f"mode={mode!r}" in note for note in result.trace for mode in overtaking
    )
    return None if overtaken else Counter(Window.shown)


def test_behind_an_aligned_stop_even_a_sink_without_transactions_shows_nothing() -> None:
    for seed in range(sampled(16)):
        assert shown(seed) in (None, EXPECTED), f"seed {seed}"


# Planted bugs.


def assert_noticed(wrong: Callable[[int], object], first: int = 0) -> None:
    assert any(wrong(seed) for seed in seeds(SEEDS, first)), f"nobody noticed in {SEEDS} runs"


def test_savepoints_whose_output_is_not_committed(monkeypatch: Patch) -> None:
    on_manifest_stored = CheckpointCoordinator.on_manifest_stored

    def without_commit(
        self: CheckpointCoordinator, checkpoint_id: int, now: float
    ) -> list[JobCommand]:
        of_savepoint = bool(self._savepoints.untaken)
        commands = on_manifest_stored(self, checkpoint_id, now)
        return [
            replace(command, handles=())
            if of_savepoint and isinstance(command, CommitHandles)
            else command
            for command in commands
        ]

    monkeypatch.setattr(CheckpointCoordinator, "on_manifest_stored", without_commit)
    assert_noticed(lambda seed: run(seed)[1], first=12)


def test_retention_that_deletes_what_is_still_to_be_copied(monkeypatch: Patch) -> None:
    failing_commits = replace(Faults.none(), storage_errors=150)

    def wrong(seed: int) -> list[str]:
        """Nothing if so many errors are too much for the job itself."""
        found = run(seed, faults=failing_commits, requests=Requests(savepoints=8))[1]
        return [] if any("the job failed" in problem for problem in found) else found

    # As closely behind each other as they can: else hardly any checkpoint is complete before the copy.
    monkeypatch.setattr(TriggerTimes, "on_full", lambda self, now: None)
    assert not any(wrong(seed) for seed in range(sampled(15)))
    monkeypatch.setattr(Savepoints, "needed", lambda self, storing: frozenset())
    assert_noticed(wrong, first=27)


def test_a_copy_without_in_flight_data(monkeypatch: Patch) -> None:
    publish = StorageTasks._publish

    def without_in_flight(self: StorageTasks, manifest: Manifest, path: str | None) -> JobEvent:
        return publish(self, replace(manifest, in_flight=()), path)

    monkeypatch.setattr(StorageTasks, "_publish", without_in_flight)
    assert_noticed(lambda seed: run(seed, "unaligned")[1], first=26)


def test_sources_that_are_not_paused_when_the_job_is_stopped(monkeypatch: Patch) -> None:
    obey = Subtask.obey

    def without_pause(self: Subtask, command: SubtaskCommand) -> None:
        if isinstance(command, TriggerCheckpoint):
            command = replace(command, pause=False)
        obey(self, command)

    monkeypatch.setattr(Subtask, "obey", without_pause)
    assert_noticed(lambda seed: shown(seed) not in (None, EXPECTED), first=156)


def test_sources_that_stay_paused_after_a_stop_that_failed(monkeypatch: Patch) -> None:
    failing_stops = replace(Faults.none(), storage_errors=40)

    def wrong(seed: int) -> list[str]:
        return run(seed, faults=failing_stops, requests=Requests(stops=8), steps_max=20_000)[1]

    assert not any(wrong(seed) for seed in range(sampled(15)))
    obey = Subtask.obey

    def for_ever(self: Subtask, command: SubtaskCommand) -> None:
        if not isinstance(command, ResumeSources):
            obey(self, command)

    monkeypatch.setattr(Subtask, "obey", for_ever)
    assert_noticed(wrong, first=85)
