"""The recovery line, against brute force: small jobs whose subtasks take snapshots when they like.

The model knows each record by its name, so what it checks does not go by the numbers that are checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import ProtocolError
from minirt.protocol.ids import SubtaskId
from minirt.protocol.lines import LineTracker, LocalCut

Graph = tuple[int, tuple[tuple[int, int], ...]]
"""How many subtasks, and the sender and receiver of each channel."""
Step = tuple[str, int]
Record = tuple[int, int]
"""The n-th of a channel."""

RUNS = 60
KINDS = ("send", "process", "send", "process", "snapshot", "store", "store")


def subtask(number: int) -> SubtaskId:
    return SubtaskId(number, 0)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to four subtasks; a channel may have another one beside it, and a subtask none at all."""
    count = draw(st.integers(2, 4))
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    return count, tuple(draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=5)))


def scripts() -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4)), max_size=60)


def drawn(random: Random) -> tuple[Graph, list[Step]]:
    """A whole run, long enough for much to happen."""
    count = random.randint(2, 4)
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    graph = (count, tuple(random.choices(pairs, k=random.randint(1, 4))))
    return graph, [(random.choice(KINDS), random.randrange(12)) for _ in range(80)]


@dataclass(frozen=True)
class Taken:
    """A snapshot, with the names of what its subtask had really sent and processed."""

    cut: LocalCut
    sent: frozenset[Record]
    processed: frozenset[Record]


def need(newest: int) -> int:
    """The first snapshot that has sent a record, by the newest mark that was ahead of it."""
    return newest + 1


@dataclass
class World:
    """A running job. A wire holds records, and marks as texts."""

    graph: Graph
    tracker_type: type[LineTracker] = LineTracker
    need: Callable[[int], int] = need
    deletes_old: bool = False

    def __post_init__(self) -> None:
        count, self.channels = self.graph
        self.subtasks = [subtask(number) for number in range(count)]
        self.tracker = self.tracker_type(self.subtasks)
        self.wires = [deque[Record | int]() for _ in self.channels]
        self.newest = [0] * len(self.channels)
        """By channel: the newest mark that was consumed."""
        self.needed = [0] * len(self.channels)
        """By channel: what the last record needs."""
        self.sent: list[list[Record]] = [[] for _ in self.channels]
        self.processed: list[list[Record]] = [[] for _ in self.channels]
        self.numbers = [0] * count
        self.storing: list[deque[Taken]] = [deque() for _ in self.subtasks]
        self.durable = [[self.take(number)] for number in range(count)]
        self.files = [{0} for _ in self.subtasks]
        self.skipped = 0

    def run(self, script: list[Step]) -> None:
        for kind, number in script:
            self.step(kind, number)

    def step(self, kind: str, number: int) -> None:
        if kind in ("snapshot", "store"):
            of = number % len(self.subtasks)
            if kind == "snapshot":
                self.numbers[of] += 1
                self.storing[of].append(self.take(of))
                for channel, (sender, _) in enumerate(self.channels):
                    if sender == of:
                        self.wires[channel].append(self.numbers[of])
            elif self.storing[of]:
                self.store(of)
            return
        channel = number % len(self.channels)
        if kind == "send":
            record = (channel, len(self.sent[channel]))
            self.sent[channel].append(record)
            self.wires[channel].append(record)
        elif self.wires[channel]:
            element = self.wires[channel].popleft()
            if isinstance(element, int):
                self.newest[channel] = element
            else:
                self.needed[channel] = self.need(self.newest[channel])
                self.processed[channel].append(element)

    def take(self, of: int) -> Taken:
        needs: dict[SubtaskId, int] = {}
        for channel, (sender, receiver) in enumerate(self.channels):
            if receiver == of:
                one = subtask(sender)
                needs[one] = max(needs.get(one, 0), self.needed[channel])
        ends = [*enumerate(self.channels)]
        return Taken(
            LocalCut(self.numbers[of], tuple(sorted(needs.items()))),
            frozenset(r for c, (sender, _) in ends if sender == of for r in self.sent[c]),
            frozenset(r for c, (_, to) in ends if to == of for r in self.processed[c]),
        )

    def store(self, of: int) -> None:
        """A snapshot is durable; then all that must hold is looked at."""
        before = dict(self.tracker.line)
        taken = self.storing[of].popleft()
        self.durable[of].append(taken)
        self.files[of].add(taken.cut.number)
        moved = self.tracker.add(subtask(of), taken.cut)
        line = self.tracker.line
        assert all(line[one] >= before[one] for one in self.subtasks), "the line moves back"
        assert moved == (line != before)
        self.skipped += sum(max(0, line[one] - before[one] - 1) for one in self.subtasks)
        self.look_at_the_cut(line)
        assert dict(line) == self.greatest(), "not the greatest consistent cut"
        self.clean_up()

    def look_at_the_cut(self, line: Mapping[SubtaskId, int]) -> None:
        for number, of in enumerate(self.subtasks):
            assert line[of] in self.files[number], "a snapshot of the line was deleted"
        sent = frozenset[Record]().union(
            *(self.on(line, n).sent for n in range(len(self.subtasks)))
        )
        for number in range(len(self.subtasks)):
            assert self.on(line, number).processed <= sent, "orphan"

    def on(self, line: Mapping[SubtaskId, int], of: int) -> Taken:
        return self.durable[of][line[subtask(of)]]

    def greatest(self) -> dict[SubtaskId, int]:
        """By enumeration. Consistent cuts form a lattice, so the greatest is one of them."""
        cuts = product(*(range(len(stored)) for stored in self.durable))
        consistent = [cut for cut in cuts if self.is_consistent(cut)]
        best = tuple(map(max, zip(*consistent, strict=True)))
        assert best in consistent
        return dict(zip(self.subtasks, best, strict=True))

    def is_consistent(self, cut: tuple[int, ...]) -> bool:
        taken = [stored[number] for stored, number in zip(self.durable, cut, strict=True)]
        sent = frozenset[Record]().union(*(one.sent for one in taken))
        return all(one.processed <= sent for one in taken)

    def clean_up(self) -> None:
        for number, of in enumerate(self.subtasks):
            kept = {max(self.files[number])} if self.deletes_old else {*self.tracker.kept(of)}
            self.files[number] &= kept


@given(graph=graphs(), script=scripts())
def test_the_line_is_the_greatest_consistent_cut(graph: Graph, script: list[Step]) -> None:
    World(graph).run(script)


def test_it_is_so_in_long_runs_as_well() -> None:
    moved = skipped = 0
    for seed in range(RUNS):
        graph, script = drawn(Random(seed))
        world = World(graph)
        world.run(script)
        moved += sum(world.tracker.line.values())
        skipped += world.skipped
    assert moved > RUNS
    assert skipped > 0


class Trusting(LineTracker):
    """Takes the newest snapshots that there are."""

    def _advance(self, subtask: SubtaskId) -> bool:
        if not self._ahead[subtask]:
            return False
        self._line[subtask] = self._ahead[subtask].popleft()
        return True


class Stubborn(LineTracker):
    """Does not look at those behind a subtask that moves."""

    def add(self, subtask: SubtaskId, cut: LocalCut) -> bool:
        self._ahead[subtask].append(cut)
        return self._advance(subtask)


@dataclass(frozen=True)
class Mistake:
    """What a wrong runtime does."""

    tracker: type[LineTracker] = LineTracker
    need: Callable[[int], int] = field(default=need)
    deletes_old: bool = False


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (Mistake(Trusting), "orphan"),
        (Mistake(Stubborn), "not the greatest"),
        (Mistake(need=lambda newest: newest), "orphan"),
        (Mistake(need=lambda newest: newest + 2), "not the greatest"),
        (Mistake(deletes_old=True), "was deleted"),
    ],
    ids=["no look", "no further", "one too low", "one too high", "by age"],
)
def test_a_mistake_is_found(mistake: Mistake, found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        run_many(mistake)


def run_many(mistake: Mistake) -> None:
    for seed in range(RUNS):
        graph, script = drawn(Random(seed))
        World(graph, mistake.tracker, mistake.need, mistake.deletes_old).run(script)


@given(graph=graphs(), rounds=st.lists(st.tuples(scripts(), st.randoms()), min_size=1, max_size=3))
def test_each_subtask_is_behind_by_as_many_rounds_as_lie_between_it_and_the_sources(
    graph: Graph, rounds: list[tuple[list[Step], Random]]
) -> None:
    """If all take a snapshot in each round: so a failure takes back depth x interval at most."""
    world = World(graph)
    depths: dict[int, int] = {}
    for of in range(graph[0]):  # Channels lead from lower to higher numbers.
        senders = [sender for sender, receiver in graph[1] if receiver == of]
        depths[of] = max((depths[one] + 1 for one in senders), default=0)
    for number, (script, random) in enumerate(rounds, start=1):
        between = [step for step in script if step[0] not in ("snapshot", "store")]
        world.run(between)
        order = [*range(graph[0])]
        random.shuffle(order)
        for place in order:
            world.step("snapshot", place)
            world.run(between[place::7])
        for place in order:
            world.step("store", place)
        for of, depth in depths.items():
            assert world.tracker.line[subtask(of)] >= number - depth


def test_sources_first_leaves_the_receivers_behind() -> None:
    world = World((2, ((0, 1),)))
    world.run([("snapshot", 0), ("store", 0), ("send", 0), ("process", 0), ("process", 0)])
    world.run([("snapshot", 1), ("store", 1)])
    assert world.tracker.line == {subtask(0): 1, subtask(1): 0}
    assert world.tracker.kept(subtask(1)) == [0, 1]
    world.run([("snapshot", 1), ("store", 1), ("snapshot", 0), ("store", 0)])
    assert world.tracker.line == {subtask(0): 2, subtask(1): 2}


def test_a_snapshot_that_could_not_be_stored_is_passed_over() -> None:
    tracker = LineTracker([subtask(0)])
    assert tracker.add(subtask(0), LocalCut(1))
    assert tracker.add(subtask(0), LocalCut(3))
    assert tracker.line == {subtask(0): 3}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (LocalCut(2, ((subtask(0), 5),)), "stored snapshot 2 behind 2"),
        (LocalCut(3, ((subtask(0), 4),)), "consumed less"),
        (LocalCut(3), "other senders"),
    ],
)
def test_a_snapshot_that_cannot_be_is_refused(wrong: LocalCut, message: str) -> None:
    tracker = LineTracker([subtask(0), subtask(1)])
    tracker.add(subtask(1), LocalCut(2, ((subtask(0), 5),)))
    with pytest.raises(ProtocolError, match=message):
        tracker.add(subtask(1), wrong)
