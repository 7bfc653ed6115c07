"""Which snapshots are useless, with marks that force snapshots and without, by brute force on small jobs.

A snapshot is useless if no consistent cut holds it (Netzer and Xu, 1995). Jobs have no circles; here some
graphs do, as nothing else shows what forced snapshots are good for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from hypothesis import given

from tests.protocol.test_lines import Graph, Step, Taken, World, graphs, scripts

RUNS = 80
CIRCLE: Graph = (2, ((0, 1), (1, 0)))
STEPS = 30


class Free(World):
    """Each subtask takes snapshots when it likes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.taken = [[*stored] for stored in self.durable]
        self.indexes = [[0] for _ in self.subtasks]
        self.forced = 0

    def run(self, script: list[Step]) -> None:
        """In the end each subtask takes one more snapshot, and these fit together."""
        for kind, number in script:
            if kind != "store":
                self.step(kind, number)
        for of in range(len(self.subtasks)):
            self.note(of, self.indexes[of][-1] + 1)

    def step(self, kind: str, number: int) -> None:
        if kind == "snapshot":
            of = number % len(self.subtasks)
            self.note(of, self.indexes[of][-1] + 1)
            return
        channel = number % len(self.channels)
        if kind == "process" and self.wires[channel] and isinstance(self.wires[channel][0], int):
            self.on_mark(channel, self.wires[channel][0])
        super().step(kind, number)

    def on_mark(self, channel: int, number: int) -> None:
        """A mark is about to be processed."""

    def note(self, of: int, index: int) -> None:
        super().step("snapshot", of)
        self.taken[of].append(self.storing[of][-1])
        self.indexes[of].append(index)

    def useless(self) -> list[Taken]:
        held = [cut for cut in product(*self.taken) if fits(cut)]
        return [
            one
            for of, stored in enumerate(self.taken)
            for one in stored
            if not any(cut[of] is one for cut in held)
        ]


class Induced(Free):
    """A mark with a higher index forces a snapshot."""

    def on_mark(self, channel: int, number: int) -> None:
        sender, receiver = self.channels[channel]
        index = self.indexes[sender][number]
        if index > self.indexes[receiver][-1]:
            self.forced += 1
            self.note(receiver, index)


class Late(Induced):
    """Forces the snapshot behind what comes next."""

    def step(self, kind: str, number: int) -> None:
        if kind == "process":
            World.step(self, kind, number)
        super().step(kind, number)


def fits(cut: tuple[Taken, ...]) -> bool:
    sent = frozenset().union(*(one.sent for one in cut))
    return all(one.processed <= sent for one in cut)


def cuts(world: Free) -> Iterator[tuple[Taken, ...]]:
    """For each index, the first snapshot of each subtask that has it or a higher one."""
    for index in range(min(indexes[-1] for indexes in world.indexes) + 1):
        yield tuple(
            next(one for one, own in zip(stored, indexes, strict=True) if own >= index)
            for stored, indexes in zip(world.taken, world.indexes, strict=True)
        )


def script_of(random: Random) -> list[Step]:
    kinds = ("send", "process", "send", "process", "snapshot")
    return [(random.choice(kinds), random.randrange(12)) for _ in range(STEPS)]


@given(graph=graphs(), script=scripts())
def test_without_circles_no_snapshot_is_useless_whether_any_is_forced_or_not(
    graph: Graph, script: list[Step]
) -> None:
    for kind in (Free, Induced):
        world = kind(graph)
        world.run(script[:25])
        assert world.useless() == []


@given(graph=graphs(), script=scripts())
def test_snapshots_of_an_index_fit_together(graph: Graph, script: list[Step]) -> None:
    world = Induced(graph)
    world.run(script)
    assert all(fits(cut) for cut in cuts(world))


def in_a_circle(kind: type[Free]) -> tuple[int, int]:
    """How many snapshots were useless, and forced."""
    useless = forced = 0
    for seed in range(RUNS):
        world = kind(CIRCLE)
        world.run(script_of(Random(seed)))
        useless += len(world.useless())
        forced += world.forced
    return useless, forced


def test_in_a_circle_forced_snapshots_are_what_keeps_others_from_being_useless() -> None:
    assert in_a_circle(Free)[0] > 0
    useless, forced = in_a_circle(Induced)
    assert useless == 0
    assert forced > 0


def test_a_snapshot_that_is_forced_too_late_is_noticed() -> None:
    graph = (3, ((0, 1), (1, 2), (0, 2)))
    worlds = [Late(graph) for _ in range(RUNS)]
    for seed, world in enumerate(worlds):
        world.run(script_of(Random(seed)))
    assert not all(fits(cut) for world in worlds for cut in cuts(world))
