"""Timers: order, deletion, and restoring at another parallelism."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minirt.data.errors import MalformedDataError
from minirt.data.keys import distinct_keys, group_range, key_group
from minirt.functions import TimeDomain
from minirt.state import timers as timers_module
from minirt.state.timers import Timers
from tests.data.strategies import KEYS

GROUPS = 128
ALL = range(GROUPS)
DOMAINS: tuple[TimeDomain, TimeDomain] = ("event", "processing")


def drain(timers: Timers, domain: TimeDomain, now: int = 2**62) -> list[tuple[int, Any]]:
    fired = []
    while (timer := timers.pop_due(domain, now)) is not None:
        fired.append(timer)
    return fired


def test_due_timers_fire_in_order_of_time_and_then_of_registration() -> None:
    timers = Timers(GROUPS, ALL)
    for at, key in ((5, "b"), (5, "a"), (3, None), (9, "late"), (5, ("t", 1)), (-1, 0)):
        timers.set("event", at, key)
    assert drain(timers, "event", 5) == [(-1, 0), (3, None), (5, "b"), (5, "a"), (5, ("t", 1))]
    assert timers.pop_due("event", 8) is None
    assert timers.next("event") == 9
    assert len(timers) == 1


def test_setting_a_timer_twice_fires_it_once_at_its_first_place() -> None:
    timers = Timers(GROUPS, ALL)
    for key in ("a", "b", "a"):
        timers.set("event", 1, key)
    assert len(timers) == 2
    assert drain(timers, "event") == [(1, "a"), (1, "b")]


def test_deleted_timer_does_not_fire_and_deleting_again_changes_nothing() -> None:
    timers = Timers(GROUPS, ALL)
    timers.set("event", 1, "a")
    timers.set("event", 2, "a")
    timers.delete("event", 1, "a")
    timers.delete("event", 1, "a")
    timers.delete("event", 7, "unknown")
    assert len(timers) == 1
    assert timers.next("event") == 2
    assert drain(timers, "event") == [(2, "a")]
    assert timers.next("event") is None


def test_timer_that_is_set_again_after_deletion_fires_once_and_last() -> None:
    timers = Timers(GROUPS, ALL)
    timers.set("event", 1, "a")
    timers.set("event", 1, "b")
    timers.delete("event", 1, "a")
    timers.set("event", 1, "a")
    assert drain(timers, "event") == [(1, "b"), (1, "a")]


def test_time_domains_are_apart() -> None:
    timers = Timers(GROUPS, ALL)
    timers.set("event", 1, "a")
    timers.set("processing", 1, "a")
    timers.delete("event", 1, "a")
    assert timers.next("event") is None
    assert drain(timers, "processing") == [(1, "a")]


def test_keys_that_cannot_be_compared_may_share_a_time() -> None:
    timers = Timers(GROUPS, ALL)
    keys = [1, "a", None, b"x", (1,)]
    for key in keys:
        timers.set("event", 0, key)
    timers.restore(timers.snapshot(), filter_groups=True)
    assert [key for _, key in drain(timers, "event")] == keys


def test_many_deletions_do_not_keep_memory() -> None:
    timers = Timers(GROUPS, ALL)
    timers.set("event", 10**9, "last")
    for at in range(20_000):
        timers.set("event", at, "k")
        timers.delete("event", at, "k")
    assert len(timers._queues["event"]._heap) < 5_000
    assert drain(timers, "event") == [(10**9, "last")]


def test_snapshot_without_timers_is_empty() -> None:
    timers = Timers(GROUPS, ALL)
    assert timers.snapshot() == {}
    timers.set("processing", 1, "a")
    assert list(timers.snapshot()) == ["processing"]


def test_section_of_an_unknown_domain_is_refused() -> None:
    timers = Timers(GROUPS, ALL)
    timers.set("event", 1, "a")
    section = timers.snapshot()["event"]
    with pytest.raises(MalformedDataError, match="unknown time domain 'wall'"):
        timers.restore({"wall": section}, filter_groups=False)


DISTINCT_KEYS = KEYS.map(lambda key: distinct_keys([key])[0])
"""As operators hand them over: a time that its zone passes over is already the one that it stands for."""

TIMERS = st.lists(
    st.tuples(st.sampled_from(DOMAINS), st.integers(-3, 3), DISTINCT_KEYS), max_size=20
)


@given(TIMERS, st.integers(1, 5), st.integers(1, 5))
def test_every_timer_ends_up_in_exactly_one_subtask_when_rescaled(
    wanted: list[tuple[TimeDomain, int, Any]], before: int, after: int
) -> None:
    old = [Timers(GROUPS, group_range(i, before, GROUPS)) for i in range(before)]
    for domain, at, key in wanted:
        owner = key_group(key, GROUPS) * before // GROUPS
        old[owner].set(domain, at, key)
    snapshots = [timers.snapshot() for timers in old]
    new = [Timers(GROUPS, group_range(i, after, GROUPS)) for i in range(after)]
    for timers in new:
        for sections in snapshots:
            timers.restore(sections, filter_groups=True)
    assert sum(map(len, new)) == sum(map(len, old)) == len(set(wanted))
    for domain in DOMAINS:
        for index, timers in enumerate(new):
            fired = drain(timers, domain)
            owned = group_range(index, after, GROUPS)
            assert {key_group(key, GROUPS) for _, key in fired} <= set(owned)
            assert [at for at, _ in fired] == sorted(at for at, _ in fired)
            wanted_here = {
                (at, key)
                for d, at, key in wanted
                if d == domain and key_group(key, GROUPS) in owned
            }
            assert set(fired) == wanted_here
            assert len(fired) == len(wanted_here)


@given(TIMERS)
def test_restored_timers_fire_in_the_order_they_would_have(
    wanted: list[tuple[TimeDomain, int, Any]],
) -> None:
    timers, other = Timers(GROUPS, ALL), Timers(GROUPS, ALL)
    for domain, at, key in wanted:
        timers.set(domain, at, key)
    other.restore(timers.snapshot(), filter_groups=False)
    for domain in DOMAINS:
        assert drain(other, domain) == drain(timers, domain)


class TimersAgainstASortedList(RuleBasedStateMachine):
    """Timers do what a plain list would, kept in order of setting and sorted by time when asked."""

    keys = st.sampled_from(["a", 1, None])
    times = st.integers(0, 4)

    @initialize()
    def start(self) -> None:
        self.timers = Timers(GROUPS, ALL)
        self.model: list[tuple[int, Any]] = []

    @rule(at=times, key=keys)
    def set(self, at: int, key: Any) -> None:
        self.timers.set("event", at, key)
        if (at, key) not in self.model:
            self.model.append((at, key))

    @rule(at=times, key=keys)
    def delete(self, at: int, key: Any) -> None:
        self.timers.delete("event", at, key)
        self.model = [timer for timer in self.model if timer != (at, key)]

    @rule(now=times)
    def pop_due(self, now: int) -> None:
        due = sorted((timer for timer in self.model if timer[0] <= now), key=lambda timer: timer[0])
        expected = due[0] if due else None
        assert self.timers.pop_due("event", now) == expected
        self.model = [timer for timer in self.model if timer != expected]

    @rule()
    def crash_and_restore(self) -> None:
        sections = self.timers.snapshot()
        self.timers = Timers(GROUPS, ALL)
        self.timers.restore(sections, filter_groups=True)
        self.model.sort(key=lambda timer: timer[0])

    @invariant()
    def agree(self) -> None:
        assert len(self.timers) == len(self.model)
        assert self.timers.next("event") == min((at for at, _ in self.model), default=None)


TestTimersAgainstASortedList = TimersAgainstASortedList.TestCase


def test_compaction_keeps_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers_module, "_STALE_MAX", 0)
    timers = Timers(GROUPS, ALL)
    for number in range(40):
        timers.set("event", number % 4, number)
    for number in range(30):
        timers.delete("event", number % 4, number)
    assert len(timers._queues["event"]._heap) <= 20
    left = sorted(((n % 4, n) for n in range(30, 40)), key=lambda timer: timer[0])
    assert drain(timers, "event") == left


def end(timers: Timers, domain: TimeDomain) -> list[tuple[int, Any]]:
    """What fires at the end of input, if each timer sets one that is later."""
    fired = []
    while (timer := timers.pop_at_end(domain)) is not None:
        fired.append(timer)
        timers.set(domain, timer[0] + 10, timer[1])
    return fired


def test_the_end_fires_what_is_pending_and_in_event_time_what_that_sets() -> None:
    timers = Timers(GROUPS, ALL)
    for domain in DOMAINS:
        timers.set(domain, 1, "a")
        timers.set(domain, 4, "b")
    assert end(timers, "event") == [(1, "a"), (4, "b"), (11, "a"), (14, "b")]
    assert end(timers, "processing") == [(1, "a"), (4, "b")]
    assert len(timers) == 4, "the others stay set"


def ended() -> Timers:
    """Restored from a snapshot of timers that had come to the end of input."""
    timers, later = Timers(GROUPS, ALL), Timers(GROUPS, ALL)
    for domain in DOMAINS:
        timers.set(domain, 1, "a")
        end(timers, domain)
    later.restore(timers.snapshot(), filter_groups=False)
    return later


def test_a_second_end_after_a_restore_fires_nothing() -> None:
    timers = ended()
    assert [end(timers, domain) for domain in DOMAINS] == [[], []]


def test_timers_that_an_end_left_fire_when_their_time_comes() -> None:
    timers = ended()
    assert drain(timers, "event", 21) == [(21, "a")]
    timers.set("event", 31, "a")
    assert end(timers, "event") == [(31, "a"), (41, "a")], "they begin anew"


def test_timers_of_keys_with_records_count_as_pending() -> None:
    timers = ended()
    timers.goes_on(["a", "b"])
    assert end(timers, "event") == [(21, "a"), (31, "a")]
    assert end(timers, "processing") == [(11, "a")]


def test_setting_a_timer_that_an_end_left_makes_it_pending() -> None:
    timers = ended()
    timers.set("event", 21, "a")
    assert end(timers, "event") == [(21, "a"), (31, "a")]
