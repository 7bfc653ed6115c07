"""Workers that come back alone behind the end of their input, while others still run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import JobStatus
from minirt.protocol.lines import LocalCut
from minirt.runtime.channels.numbered import NumberedOutput
from minirt.testing import SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered
from minirt.testing.options import drawn_options
from minirt.testing.simulation import Simulation
from tests.campaigns import sampled, seeds
from tests.simulation.test_comebacks import Remember, lost_or_more
from tests.simulation.test_replays import CRASHES, REPLAY, Again
from tests.simulation.test_service_order import by_remainder

Patch = pytest.MonkeyPatch

SHORT, LONG, SPLITS = 12, 100, 2
EXPECTED = Counter([*numbered("short", SPLITS, SHORT), *numbered("long", SPLITS, LONG)])
SEEDS = 60
STRUCK = 6
"""From this seed on the first few come back behind their end."""
_STRIKE_STEPS, _STRIKES = 150, 4


class Struck:
    """Workers that were killed where all their subtasks fall back behind their end."""

    def __init__(self) -> None:
        self.vertices: Counter[int] = Counter()
        self._left = _STRIKES
        self._armed = False

    def begin(self, simulation: Simulation) -> None:
        """Strike so often from here on."""
        if not self._armed:
            self._armed = True
            self.later(simulation)

    def later(self, simulation: Simulation) -> None:
        simulation.schedule.later(_STRIKE_STEPS, lambda: self.strike(simulation))

    def strike(self, simulation: Simulation) -> None:
        """Kill one that has ended, or its receivers: of these, also one that has not."""
        newest, random = simulation._coordinators[-1], simulation.schedule.random
        if newest.protocol.status is JobStatus.RUNNING:
            away = newest.protocol.comebacks._away
            cuts = _cuts_on_line(newest.protocol._checkpoints)
            over = {id.vertex for id, cut in cuts.items() if cut.ended}
            able = [
                worker
                for worker in newest.cluster.workers
                if not worker.gone
                and worker.assembled
                and all(id in cuts and self._may_be_struck(id, over) for id in worker.assembled)
            ]
            if able and away is None:
                # Whoever receives from one that came back needs from it what that has lost.
                behind = [one for one in able if any(id.vertex > max(over) for id in one.assembled)]
                turn = behind if self._left % 2 else able
                victim = random.choice(turn or able)
                self.vertices.update(id.vertex for id in victim.assembled if cuts[id].ended)
                victim.vanish()
                self._left -= 1
        if self._left and newest.protocol.status not in (JobStatus.FINISHED, JobStatus.FAILED):
            self.later(simulation)

    def _may_be_struck(self, id: SubtaskId, over: set[int]) -> bool:
        return bool(over) and (id.vertex in over or id.vertex > max(over))


def _cuts_on_line(checkpoints: Any) -> Mapping[SubtaskId, LocalCut]:
    """What subtasks would fall back to that have sent to others, or have none to send to."""
    if checkpoints is None:
        return {}
    family = checkpoints._family
    line = family._tracker.line
    stored = {id: own.stored.get(line[id]) for id, own in family._reported.items()}
    return {
        id: one.local
        for id, one in stored.items()
        if one is not None and one.local is not None and one.local.processed
    }


def run(seed: int) -> tuple[SimulationResult, list[str], Struck]:
    """A run whose subtasks `count`, and `twice` behind them, end long before the others."""
    mode = Uncoordinated(jitter=0.5, log_bytes=2048) if seed % 2 else Uncoordinated()
    random = Random(f"ends {seed}")
    sink, struck = TransactionalSink(), Struck()
    env = rt.Environment(parallelism=2, max_parallelism=8)
    times = rt.Watermarks.bounded("1ms", timestamp=lambda record: record[2])
    short, long = (
        env.source(NumberedSource(name, SPLITS, count), uid=name, watermarks=times, parallelism=n)
        for name, count, n in (("short", SHORT, random.choice((1, 2))), ("long", LONG, 1))
    )
    stream: Any = short.key_by(by_remainder).process(Remember(), uid="count")
    if random.random() < 0.5:
        stream = stream.forward().flat_map(lambda each: [each], uid="twice", chain=False)
    both = stream.union(long.map(lambda record: (record, 0), uid="zero"))
    again = both.key_by(lambda each: each[0][2]).process(Again(), uid="again")
    again.sink(sink, uid="out")
    with Patch.context() as patch:
        patch.setattr(
            Simulation, "_strike_worker_crashes", lambda simulation: struck.begin(simulation)
        )
        result = simulate(
            env,
            seed=seed,
            steps_max=200_000,
            checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
            faults=CRASHES,
            restart=REPLAY,
            options=replace(drawn_options(random, 0.01), placement="subtask"),
        )
    return result, [*result.problems, *_wrong_in(sink)], struck


def _wrong_in(sink: TransactionalSink) -> list[str]:
    found = lost_or_more(EXPECTED, Counter(record for record, _, _ in sink.rows))
    times = Counter((record[2], time) for record, _, time in sink.rows)
    return found + [f"{one} came {often} times" for one, often in times.items() if often > 1]


def test_nothing_is_lost_and_nothing_comes_twice() -> None:
    comebacks, ended, wanted = 0, Counter[int](), sampled(10, 2)
    for seed in range(STRUCK, STRUCK + wanted):
        result, wrong, struck = run(seed)
        assert wrong == [], seed
        comebacks += result.comebacks
        ended += struck.vertices
    assert comebacks > wanted / 2
    assert sum(ended.values()) > wanted / 2


def assert_noticed(first: int = 0) -> None:
    noticed = any(run(seed)[1] for seed in seeds(SEEDS, first))
    assert noticed, f"nobody noticed in {SEEDS} runs"


def test_an_end_that_is_sent_twice(monkeypatch: Patch) -> None:
    right = NumberedOutput.begin_at

    def begin_at(
        channel: NumberedOutput, sent: int, had: int, mark: int, *, ended: bool = False
    ) -> None:
        right(channel, sent, had, mark)

    monkeypatch.setattr(NumberedOutput, "begin_at", begin_at)
    assert_noticed(first=6)
