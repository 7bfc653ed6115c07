"""Workers that come back alone give out the same again, also where functions go through sets of state.

The state holds sets, classes and members of an Enum; each worker is killed several times.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.data import custody
from minirt.modes.uncoordinated import Uncoordinated
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource
from minirt.testing.options import drawn_options
from minirt.testing.simulation import Simulation
from tests.campaigns import MIXED, sampled, seeds
from tests.simulation.test_replays import CRASHES, REPLAY, strike_later

SPLITS, COUNT, KEPT, NEW = 1, 24, 48, 8
SPREAD = 32768
"""So far apart, many tags begin at the same place of a set: it then differs when it is built anew."""
SEEDS = 40


class State(enum.Enum):
    EMPTY, USED = 1, 2


@dataclass
class Seen:
    state: State = State.EMPTY
    tags: set[int] = field(default_factory=set)


def after(tags: set[int], number: int) -> set[int]:
    """The newest of all tags so far: some come, and old ones go."""
    for n in range(number * NEW, number * NEW + NEW):
        tags.add(n * SPREAD % 1_000_003)
    for old in sorted(tags)[: max(0, len(tags) - KEPT)]:
        tags.discard(old)
    return tags


class Members(rt.KeyedProcess):
    seen = rt.ValueState[Any]()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        seen = self.seen.value or Seen()
        if not isinstance(seen, Seen) or (seen.tags and seen.state is not State.USED):
            raise AssertionError("a class or an Enum has become another one")
        self.seen.value = Seen(State.USED, after(seen.tags, record[2]))
        for tag in self.seen.value.tags:
            yield record[2], tag


class Summed(rt.KeyedProcess):
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield record


def expected() -> Counter[Any]:
    tags: set[int] = set()
    found: Counter[Any] = Counter()
    for number in range(COUNT):
        tags = after(tags, number)
        found.update((number, tag) for tag in tags)
    return found


def run(seed: int) -> tuple[int, bool]:
    """How often a worker came back, and whether all results are there once."""
    mode = Uncoordinated(jitter=0.5, log_bytes=1024)
    sink = TransactionalSink()
    env = rt.Environment(parallelism=1, max_parallelism=8)
    source = env.source(NumberedSource("n", SPLITS, COUNT), uid="n")
    members = source.key_by(lambda record: 0).process(Members(), uid="members")
    members.key_by(lambda pair: pair[0]).process(Summed(), uid="summed").sink(sink, uid="out")
    options = drawn_options(Random(f"sets {seed}"), 0.01)
    options = rt.Options(
        limits=options.limits, placement="subtask", allow_pickle=True, buffer_timeout="0s"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "_strike_worker_crashes", strike_later)
        result = simulate(
            env,
            seed=seed,
            steps_max=150_000,
            checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
            faults=CRASHES,
            restart=REPLAY,
            options=options,
        )
    right = not result.problems and Counter(sink.rows) == expected()
    return result.comebacks, right


def test_nothing_is_lost_and_nothing_comes_twice() -> None:
    comebacks = 0
    for seed in range(MIXED, MIXED + sampled(12, 6)):
        back, right = run(seed)
        assert right, seed
        comebacks += back
    assert comebacks


def test_sets_that_keep_the_order_in_which_they_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: sets are read as they are."""
    monkeypatch.setattr(custody, "in_set_order", lambda value: value)
    assert not all(run(seed)[1] for seed in seeds(SEEDS, first=28))
