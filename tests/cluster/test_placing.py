"""Which host gets which worker, without any process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.ids import SubtaskId
from minirt.runtime.cluster.hosts import Host, Hosts, slots_of
from minirt.runtime.control.messages import Fork, KillGeneration


class NoConnection:
    """Of a host that a test plays."""

    def __init__(self) -> None:
        self.told: list[Fork | KillGeneration] = []

    def send(self, message: Fork | KillGeneration) -> None:
        self.told.append(message)

    def close(self) -> None: ...


class Time:
    now = 0.0


def hosts_with(*slots: int | None, silence_s_max: float = 3.0) -> tuple[Hosts, list[Host], Time]:
    time = Time()
    hosts = Hosts(lambda: time.now, silence_s_max)
    there = [hosts.add(NoConnection(), f"host {n}", count) for n, count in enumerate(slots)]  # type: ignore[arg-type]
    for host in there:
        host.ready = True
    return hosts, there, time


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_no_host_gets_more_than_its_slots(slots: list[int], data: st.DataObject) -> None:
    needed = data.draw(st.integers(1, sum(slots)))
    hosts, there, _ = hosts_with(*slots)
    placed = hosts.place({worker: worker for worker in range(needed)})
    assert sorted(placed) == list(range(needed))
    for host in there:
        assert list(placed.values()).count(host) <= (host.slots or 0)


def test_workers_are_spread_evenly() -> None:
    hosts, there, _ = hosts_with(4, 4)
    placed = hosts.place({worker: worker for worker in range(4)})
    assert [list(placed.values()).count(host) for host in there] == [2, 2]


def test_who_is_left_keeps_its_slots_when_a_spare_takes_those_of_a_lost_host() -> None:
    """It may have local copies of their state."""
    wanted = {worker: worker for worker in range(4)}
    hosts, [first, second, third, spare], _ = hosts_with(1, 1, 1, 1)
    spare.ready = False
    assert hosts.place({0: 0, 1: 1, 2: 2}) == {0: first, 1: second, 2: third}
    spare.ready = True
    hosts.remove(first)
    assert hosts.place({0: 0, 1: 1, 2: 2}) == {0: spare, 1: second, 2: third}
    first = hosts.add(NoConnection(), "host 0", 1)  # type: ignore[arg-type]
    first.ready = True
    assert hosts.place(wanted) == {0: spare, 1: second, 2: third, 3: first}


def test_hosts_that_come_get_their_share_of_slots_that_were_shared() -> None:
    wanted = {worker: worker for worker in range(4)}
    hosts, [first, second], _ = hosts_with(2, 2)
    second.ready = False
    assert set(hosts.place(wanted, 2).values()) == {first}
    second.ready = True
    placed = hosts.place(wanted)
    assert [list(placed.values()).count(host) for host in (first, second)] == [2, 2]


def test_subtasks_of_one_index_share_a_slot() -> None:
    placement = {SubtaskId(v, i): v * 2 + i for v in range(3) for i in range(2)}
    assert slots_of(placement) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}
    hosts, there, _ = hosts_with(1, 1)
    placed = hosts.place(slots_of(placement))
    assert [placed[worker] for worker in range(6)] == there * 3


def test_too_few_slots_place_nothing_unless_fewer_are_enough() -> None:
    hosts, there, _ = hosts_with(1, 1)
    wanted = {worker: worker for worker in range(4)}
    assert hosts.place(wanted) == {}
    assert hosts.place(wanted, 3) == {}
    shared = hosts.place(wanted, 2)
    assert [list(shared.values()).count(host) for host in there] == [2, 2]


def test_a_host_without_slots_takes_everything() -> None:
    hosts, [there], _ = hosts_with(None)
    assert set(hosts.place({worker: worker for worker in range(9)}).values()) == {there}


@pytest.mark.parametrize("why", ["silent", "not ready", "gone"])
def test_a_host_that_cannot_work_gets_nothing(why: str) -> None:
    hosts, [first, second], time = hosts_with(1, 1)
    if why == "silent":
        time.now = 4.0
        hosts.on_heard(second)
    elif why == "not ready":
        first.ready = False
    else:
        hosts.remove(first)
    assert hosts.usable_slots() == 1
    assert hosts.place({0: 0}) == {0: second}
    assert hosts.place({0: 0, 1: 1}) == {}
    if why == "silent":  # A host that was frozen serves again.
        hosts.on_heard(first)
        assert set(hosts.place({0: 0, 1: 1}).values()) == {first, second}
