"""Workers in the middle of a job that come back alone, under all faults, and planted mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.comebacks import Comebacks
from minirt.protocol.job_events import JobStatus
from minirt.protocol.restart_commands import ElementsHad
from minirt.protocol.uncoordinated import Uncoordinated as UncoordinatedFamily
from minirt.runtime.channels.numbered import NumberedOutput
from minirt.runtime.subtask.local_snapshots import ChannelLog, LocalLog
from minirt.testing import Faults, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered
from minirt.testing.options import drawn_latency_interval, drawn_options
from minirt.testing.simulation import Simulation
from tests.campaigns import MIXED, sampled, seeds
from tests.simulation.test_comebacks import Remember, lost_or_more

Patch = pytest.MonkeyPatch

SPLITS, COUNT, KEYS = 3, 40, 6
EXPECTED = Counter(numbered("n", SPLITS, COUNT))
REPLAY = rt.Restart.fixed_delay(100, 0.005, scope="replay")
CRASHES = replace(Faults.none(), worker_crashes=8)
SEEDS = 200
STRIKE_STEPS = 1500


class Again(rt.KeyedProcess):
    """Passes on the first element of each key alone: what comes twice is not seen behind it, but told."""

    times = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.times.value += 1
        yield (*record, self.times.value)


def strike_later(simulation: Simulation) -> None:
    simulation.schedule.later(STRIKE_STEPS, lambda: strike_when_it_may_come_back(simulation))


def strike_when_it_may_come_back(simulation: Simulation) -> None:
    """Kill a worker whose subtasks are on a line, mostly while nobody is away, or that of the source.

    With the latter the whole job restarts, from a line that may hold what others have fallen back to.
    """
    newest, random = simulation._coordinators[-1], simulation.schedule.random
    checkpoints, away = newest.protocol._checkpoints, newest.protocol.comebacks._away
    running = newest.protocol.status is JobStatus.RUNNING
    if checkpoints is not None and running and (away is None or random.random() < 0.05):
        line = checkpoints._family._tracker.line  # type: ignore[attr-defined]
        workers = [one for one in newest.cluster.workers if one.number and not one.gone]
        able = [one for one in workers if all(line[id] for id in one.assembled)]
        if able:
            random.choice(able if random.random() < 0.75 else newest.cluster.workers[:1]).vanish()
            return
    if not newest.gone:
        strike_later(simulation)


def run(
    seed: int,
    faults: Faults = CRASHES,
    limits: rt.Limits | None = None,
    latency_interval: float | None = None,
) -> tuple[SimulationResult, list[str]]:
    """A run, and what is wrong with it; its limits are drawn unless given.

    Each subtask of the stages `count` and `twice` reads one channel and sends on; `again` sends to nobody.
    """
    mode = Uncoordinated(jitter=0.5, log_bytes=2048) if seed % 2 else Uncoordinated()
    random = Random(f"replays {seed}")
    sink = TransactionalSink()
    env = rt.Environment(parallelism=2, max_parallelism=8)
    times = rt.Watermarks.bounded("1ms", timestamp=lambda record: record[2])
    source = env.source(
        NumberedSource("n", SPLITS, COUNT), uid="n", watermarks=times, parallelism=1
    )
    counted = source.key_by(lambda record: (record[1] + record[2]) % KEYS)
    stream: Any = counted.process(Remember(), uid="count")
    if random.random() < 0.5:
        stream = stream.forward().flat_map(lambda each: [each], uid="twice", chain=False)
    again = stream.key_by(lambda each: each[0][2]).process(Again(), uid="again")
    again.sink(sink, uid="out")
    options = replace(
        drawn_options(random, 0.01), placement="subtask", latency_interval=latency_interval
    )
    with Patch.context() as patch:
        patch.setattr(Simulation, "_strike_worker_crashes", strike_later)
        result = simulate(
            env,
            seed=seed,
            steps_max=150_000,
            checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
            faults=faults,
            restart=REPLAY,
            options=options if limits is None else replace(options, limits=limits),
        )
    return result, [*result.problems, *wrong_in(sink)]


def wrong_in(sink: TransactionalSink) -> list[str]:
    found = lost_or_more(EXPECTED, Counter(record for record, _, _ in sink.rows))
    numbers: dict[int, list[int]] = {}
    for (_, split, number), count, _ in sink.rows:
        numbers.setdefault((split + number) % KEYS, []).append(count)
    for key, counts in numbers.items():
        if sorted(counts) != list(range(1, len(counts) + 1)):
            found.append(f"key {key} was counted as {sorted(counts)}")
    times = Counter((record[2], time) for record, _, time in sink.rows)
    found += [f"{one} came {often} times" for one, often in times.items() if often > 1]
    return found + [f"part {id} has an id that was given before" for id in sink.alike]


def test_nothing_is_lost_and_nothing_comes_twice() -> None:
    comebacks, wanted = 0, sampled(20, 10)
    for seed in range(MIXED, MIXED + wanted):
        result, wrong = run(seed)
        assert wrong == [], seed
        comebacks += result.comebacks
    assert comebacks > wanted / 2


def test_among_all_other_faults() -> None:
    for seed in range(MIXED, MIXED + sampled(8, 4)):
        interval = drawn_latency_interval(Random(f"markers {seed}"), 0.01)
        faults = Faults(worker_crashes=6, lost_connections=1, full_disks=1)
        _, wrong = run(seed, faults, latency_interval=interval)
        assert wrong == [], seed


def assert_noticed(limits: rt.Limits | None = None, first: int = 0) -> None:
    noticed = any(run(seed, limits=limits)[1] for seed in seeds(SEEDS, first))
    assert noticed, f"nobody noticed in {SEEDS} runs"


@pytest.mark.parametrize(("more", "first"), [(1, 8), (-1, 17)], ids=["one too many", "one too few"])
def test_a_sender_that_passes_over(more: int, first: int, monkeypatch: Patch) -> None:
    right = NumberedOutput.begin_at

    def begin_at(
        channel: NumberedOutput, sent: int, had: int, mark: int, *, ended: bool = False
    ) -> None:
        right(channel, sent, max(sent, had + more), mark, ended=ended)

    monkeypatch.setattr(NumberedOutput, "begin_at", begin_at)
    assert_noticed(first=first)


def test_numbers_that_begin_anew_with_each_life(monkeypatch: Patch) -> None:
    right = NumberedOutput.begin_at

    def begin_at(
        channel: NumberedOutput, sent: int, had: int, mark: int, *, ended: bool = False
    ) -> None:
        right(channel, 0, had - sent, mark, ended=ended)

    monkeypatch.setattr(NumberedOutput, "begin_at", begin_at)
    assert_noticed(first=52)


def test_a_snapshot_of_what_is_done_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LocalLog, "_repeats", False)
    assert_noticed(first=155)


def test_a_mark_that_stays_ahead_of_what_its_sender_has_lost(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ChannelLog, "move_mark", lambda log, number, elements: None)
    assert_noticed(first=79)


def test_a_snapshot_behind_what_is_lost(monkeypatch: Patch) -> None:
    right = Comebacks.on_had

    def on_had(comebacks: Comebacks, event: ElementsHad, now: float) -> Any:
        elements, away = event.elements, comebacks._away
        if away is not None:
            sent = dict(one for at in away.bring_back.fallen_back.values() for one in at.cut.sent)
            elements = {id: max(had, sent.get(id, 0)) for id, had in event.elements.items()}
        return right(comebacks, replace(event, elements=elements), now)

    monkeypatch.setattr(Comebacks, "on_had", on_had)
    assert_noticed(first=6)


def test_a_receiver_that_falls_back_behind_what_its_sender_has(monkeypatch: Patch) -> None:
    monkeypatch.setattr(UncoordinatedFamily, "_gets_again", lambda family, cut: cut is not None)
    assert_noticed(first=126)
