"""Several checkpoints under way in one subtask: the exact commands, and random orders against a model."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

import pytest

from minirt.errors import ProtocolError
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.modes.unaligned import Unaligned
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import (
    AbortSnapshot,
    Alignment,
    Barrier,
    BlockChannel,
    Command,
    FinishSnapshot,
    TakeSnapshot,
    UnblockChannels,
    WatchOutputs,
    may_overlap,
)
from minirt.protocol.ended import EndedCheckpoints
from tests.campaigns import sampled

CREATED_AT = 100.0


class Watching(Aligned):
    """Says that it overlaps, and watches its outputs."""

    name: ClassVar[str] = "watching"

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        ordered = super().on_reached(alignment, channel)
        return [*ordered, WatchOutputs(alignment.barrier.checkpoint_id)]


def handler(channels: int) -> BarrierHandler:
    modes = (Aligned(), AtLeastOnce(), Unaligned(), Watching())
    return BarrierHandler(range(channels), {mode.name: mode for mode in modes})


def barrier(id: int, oldest_id: int | None = None, mode: str = "aligned") -> Barrier:
    return Barrier(id, mode, CREATED_AT, oldest_id=oldest_id)


ONE, TWO = barrier(1), barrier(2, 1)


def arrive(barriers: BarrierHandler, channel: int, *sent: Barrier) -> list[Command]:
    return [c for each in sent for c in barriers.on_arrived(channel, each, CREATED_AT)]


def reach(barriers: BarrierHandler, channel: int, sent: Barrier) -> list[Command]:
    return barriers.on_reached(channel, sent, CREATED_AT)


def taken(sent: Barrier, *still_blocked: int) -> list[Command]:
    return [
        TakeSnapshot(sent),
        UnblockChannels(),
        *map(BlockChannel, still_blocked),
        FinishSnapshot(sent.checkpoint_id, 0.0, 0.0),
    ]


# Which modes may.


def test_modes_whose_barriers_stay_in_their_place_say_so() -> None:
    assert [may_overlap(mode) for mode in (Aligned(), AtLeastOnce())] == [True, True]
    assert not may_overlap(Unaligned())
    assert not may_overlap(None)


# The commands.


def test_alignment_of_the_next_waits_behind_that_of_the_one_before() -> None:
    barriers = handler(2)
    assert arrive(barriers, 0, ONE, TWO) == []
    assert reach(barriers, 0, ONE) == [BlockChannel(0)]
    assert arrive(barriers, 1, ONE) == []
    assert reach(barriers, 1, ONE) == taken(ONE)
    assert reach(barriers, 0, TWO) == [BlockChannel(0)]
    assert arrive(barriers, 1, TWO) == []
    assert reach(barriers, 1, TWO) == taken(TWO)
    assert barriers.current is None


def test_a_barrier_that_names_no_older_one_ends_those_under_way() -> None:
    barriers = handler(2)
    arrive(barriers, 0, ONE)
    reach(barriers, 0, ONE)
    assert arrive(barriers, 1, barrier(2)) == [AbortSnapshot(1), UnblockChannels()]
    assert arrive(barriers, 1, ONE) == []


def test_a_barrier_ends_all_that_are_older_than_the_oldest_it_names() -> None:
    barriers = handler(2)
    arrive(barriers, 0, ONE, TWO)
    assert arrive(barriers, 0, barrier(3, 2)) == [AbortSnapshot(1), UnblockChannels()]
    assert arrive(barriers, 1, ONE, TWO, barrier(3, 2)) == []
    assert reach(barriers, 0, TWO) == [BlockChannel(0)]
    assert reach(barriers, 1, TWO) == taken(TWO)


def test_barriers_of_two_are_counted_apart() -> None:
    barriers = handler(3)
    one, two = barrier(1, mode="at_least_once"), barrier(2, 1, "at_least_once")
    for channel in (0, 1):
        arrive(barriers, channel, one, two)
        assert reach(barriers, channel, one) == []
        assert reach(barriers, channel, two) == []
    arrive(barriers, 2, one)
    assert reach(barriers, 2, one) == taken(one)
    arrive(barriers, 2, two)
    assert reach(barriers, 2, two) == taken(two)


def test_a_channel_that_a_later_one_has_blocked_stays_blocked() -> None:
    """An aligned savepoint behind a checkpoint that does not block."""
    barriers = handler(2)
    one, two = barrier(1, mode="at_least_once"), barrier(2, 1)
    arrive(barriers, 0, one, two)
    assert reach(barriers, 0, one) == []
    assert reach(barriers, 0, two) == [BlockChannel(0)]
    arrive(barriers, 1, one, two)
    assert reach(barriers, 1, one) == taken(one, 0)
    assert reach(barriers, 1, two) == taken(two)


def test_an_abort_spares_older_ones_and_what_they_block() -> None:
    barriers = handler(2)
    arrive(barriers, 0, ONE, TWO)
    reach(barriers, 0, ONE)
    aborted = [AbortSnapshot(2), UnblockChannels(), BlockChannel(0)]
    assert barriers.on_abort(2, spared=[1]) == aborted
    assert arrive(barriers, 1, ONE, TWO) == []
    assert reach(barriers, 1, ONE) == taken(ONE)
    assert reach(barriers, 0, TWO) == []


def test_an_abort_spares_one_whose_barriers_are_still_to_come() -> None:
    barriers = handler(1)
    assert barriers.on_abort(2, spared=[1]) == []
    assert arrive(barriers, 0, ONE, TWO) == []
    assert reach(barriers, 0, ONE) == taken(ONE)
    assert reach(barriers, 0, TWO) == []


def test_the_abort_of_an_older_one_lets_the_later_go_on() -> None:
    barriers = handler(2)
    arrive(barriers, 0, ONE, TWO)
    reach(barriers, 0, ONE)
    assert barriers.on_abort(1) == [AbortSnapshot(1), UnblockChannels()]
    assert reach(barriers, 0, TWO) == [BlockChannel(0)]
    assert arrive(barriers, 1, ONE, TWO) == []
    assert reach(barriers, 1, ONE) == []
    assert reach(barriers, 1, TWO) == taken(TWO)


def test_a_barrier_that_comes_first_behind_a_newer_one_is_stale() -> None:
    """Whoever sends through channel 0 knew that checkpoint 1 was given up."""
    barriers = handler(2)
    assert arrive(barriers, 0, TWO) == []
    assert arrive(barriers, 1, ONE, TWO) == []
    assert reach(barriers, 1, ONE) == []
    assert reach(barriers, 1, TWO) == [BlockChannel(1)]
    assert reach(barriers, 0, TWO) == taken(TWO)


def test_a_channel_that_ends_owes_none_of_them_a_barrier() -> None:
    barriers = handler(2)
    arrive(barriers, 0, ONE, TWO)
    reach(barriers, 0, ONE)
    assert barriers.on_channel_ended(1, CREATED_AT) == taken(ONE)
    assert reach(barriers, 0, TWO) == taken(TWO)


@pytest.mark.parametrize("mode", ["unaligned", "watching"])
def test_a_mode_that_overtakes_beside_others_is_stopped(mode: str) -> None:
    barriers = handler(1)
    arrive(barriers, 0, ONE)
    sent = barrier(2, 1, mode)
    with pytest.raises(ProtocolError, match=f"'{mode}' overtakes for checkpoint 2, with others"):
        assert arrive(barriers, 0, sent) + reach(barriers, 0, sent)


# What is over.


def test_what_was_over_stays_over_whoever_is_spared_later() -> None:
    ended = EndedCheckpoints()
    ended.add(3, spared=[1, 2])
    ended.add(1)
    ended.add(5, spared=[1, 2, 4])
    assert [id for id in range(1, 7) if id in ended] == [1, 3, 5]
    ended.add(4)
    assert [id for id in range(1, 7) if id in ended] == [1, 2, 3, 4, 5]


def test_ended_checkpoints_are_those_of_a_plain_set() -> None:
    for seed in range(sampled(300, 3)):
        random, ended, over = Random(seed), EndedCheckpoints(), set[int]()
        for _ in range(12):
            id = random.randint(1, 9)
            spared = [other for other in range(1, 10) if random.random() < 0.4]
            ended.add(id, spared)
            over |= {other for other in range(1, id + 1) if other == id or other not in spared}
            assert {other for other in range(1, 10) if other in ended} == over, (seed, id, spared)


# Random orders.


@dataclass
class Channels:
    """A subtask that counts what it has read of each channel, for as many checkpoints as there are."""

    random: Random
    count: int
    modes: dict[int, str]
    given_up: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.barriers = handler(self.count)
        self.wires: list[deque[int | Barrier]] = [deque() for _ in range(self.count)]
        self.queues: list[deque[int | Barrier]] = [deque() for _ in range(self.count)]
        for wire in self.wires:
            for id, mode in self.modes.items():
                wire.extend([0] * self.random.randint(0, 3))
                wire.append(barrier(id, 1 if id > 1 else None, mode))
        self.ahead = [self._ahead(wire) for wire in self.wires]
        self.read = [0] * self.count
        self.blocked: set[int] = set()
        self.cuts: dict[int, list[int]] = {}
        self.finished: list[int] = []

    @staticmethod
    def _ahead(wire: deque[int | Barrier]) -> dict[int, int]:
        """By checkpoint, how many records are ahead of its barrier."""
        found, records = {}, 0
        for each in wire:
            if isinstance(each, Barrier):
                found[each.checkpoint_id] = records
            else:
                records += 1
        return found

    def run(self) -> None:
        while True:
            arriving = [("arrive", c) for c in range(self.count) if self.wires[c]]
            readable = [c for c in range(self.count) if self.queues[c] and c not in self.blocked]
            steps = arriving + [("read", c) for c in readable]
            if not steps:
                return
            self.step(*self.random.choice(steps))
            if self.random.random() < 0.1:
                self.give_one_up()

    def step(self, what: str, channel: int) -> None:
        if what == "arrive":
            each = self.wires[channel].popleft()
            self.queues[channel].append(each)
            if isinstance(each, Barrier):
                self.obey(self.barriers.on_arrived(channel, each, CREATED_AT))
            return
        each = self.queues[channel].popleft()
        if isinstance(each, Barrier):
            self.obey(self.barriers.on_reached(channel, each, CREATED_AT))
        else:
            self.read[channel] += 1

    def give_one_up(self) -> None:
        going_on = [id for id in self.modes if id not in self.given_up and id not in self.finished]
        if going_on:
            id = self.random.choice(going_on)
            self.given_up.add(id)
            self.obey(self.barriers.on_abort(id, [other for other in going_on if other < id]))

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel):
                    self.blocked.add(channel)
                case UnblockChannels():
                    self.blocked.clear()
                case TakeSnapshot(taken):
                    self.cuts[taken.checkpoint_id] = list(self.read)
                case FinishSnapshot(id):
                    self.finished.append(id)


@pytest.mark.parametrize("modes", [("aligned",), ("at_least_once",), ("aligned", "at_least_once")])
def test_each_one_cuts_all_channels_at_its_own_barriers(modes: tuple[str, ...]) -> None:
    """A savepoint may be of the other mode. What does not block may have read on."""
    for seed in range(sampled(500, 10)):
        random = Random(seed)
        of = {id: random.choice(modes) for id in range(1, random.randint(2, 5))}
        channels = Channels(random, random.randint(1, 4), of)
        channels.run()
        wanted = [id for id in of if id not in channels.given_up]
        assert [id for id in channels.finished if id not in channels.given_up] == wanted, seed
        assert channels.finished == sorted(channels.finished), seed
        assert not channels.blocked, seed
        for id in wanted:
            at_barrier = [ahead[id] for ahead in channels.ahead]
            if of[id] == "aligned":
                assert channels.cuts[id] == at_barrier, (seed, id)
            cut = zip(channels.cuts[id], at_barrier, strict=True)
            assert all(read >= ahead for read, ahead in cut), (seed, id)
