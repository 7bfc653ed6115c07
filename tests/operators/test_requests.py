"""The queue of requests: pure, so that every order of its events can be tried."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from minirt.operators.common.requests import Request, RequestQueue, TimeSignal


def emptied(queue: RequestQueue, count: int = 100) -> list[Any]:
    """All that comes out now: records, and signals."""
    found: list[Any] = []
    while (taken := queue.take(count)) is not None:
        found += [taken] if isinstance(taken, TimeSignal) else [each.record for each in taken]
    return found


def watermark(at: int) -> TimeSignal:
    return TimeSignal(at, None)


def filled(ordered: bool, *events: Any, capacity: int = 10) -> tuple[RequestQueue, list[Request]]:
    """A queue with requests, which are numbers, and signals; and the requests."""
    queue, requests = RequestQueue(capacity, ordered=ordered), []
    for event in events:
        if isinstance(event, TimeSignal):
            queue.signal(event)
        else:
            requests.append(queue.add(event, None))
    return queue, requests


def test_in_order_an_answer_waits_for_those_before_it() -> None:
    queue, (first, second, third) = filled(True, 1, 2, 3)
    queue.on_answered(second, 20, None)
    assert emptied(queue) == []
    queue.on_answered(first, 10, None)
    assert emptied(queue) == [1, 2]
    queue.on_answered(third, 30, None)
    assert emptied(queue) == [3]
    assert queue.empty


def test_as_they_come_an_answer_waits_for_nobody_but_a_watermark() -> None:
    queue, (first, second, third) = filled(False, 1, 2, watermark(5), 3)
    queue.on_answered(third, 30, None)
    queue.on_answered(second, 20, None)
    assert emptied(queue) == [2]
    queue.on_answered(first, 10, None)
    assert emptied(queue) == [1, watermark(5), 3]


def test_signals_that_nothing_lies_between_are_one() -> None:
    queue, (only,) = filled(True, 1, watermark(5), TimeSignal(None, True), watermark(7))
    assert len(queue) == 1
    queue.on_answered(only, None, None)
    assert emptied(queue) == [1, TimeSignal(7, True)]
    queue.signal(watermark(8))
    assert not queue.empty
    assert emptied(queue) == [watermark(8)]


def test_there_is_room_for_a_few_more_than_can_be_sent() -> None:
    queue = RequestQueue(8, ordered=True)
    assert queue.room == 10
    [request, *_] = [queue.add(number, None) for number in range(10)]
    assert queue.room == 0
    queue.on_answered(request, None, None)
    assert emptied(queue) == [0]
    assert queue.room == 0, "one at a time is not worth it"


def test_one_at_a_time() -> None:
    queue = RequestQueue(1, ordered=True)
    assert queue.room == 1
    request = queue.add("a", 1)
    assert queue.room == 0
    queue.on_answered(request, None, None)
    assert emptied(queue) == ["a"]
    assert queue.room == 1


EVENTS = st.lists(st.sampled_from(["add", "signal", "answer", "take"]), max_size=60)


@given(EVENTS, st.booleans(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_nothing_is_lost_and_nothing_passes_a_signal(
    events: list[str], ordered: bool, capacity: int, random: Any
) -> None:
    queue = RequestQueue(capacity, ordered=ordered)
    went_in: list[Any] = []
    came_out: list[Any] = []
    under_way: list[Request] = []
    for number, event in enumerate([*events, *["answer", "take"] * (len(events) + 1)]):
        match event:
            case "add":
                under_way.append(queue.add(number, None))
                went_in.append(number)
            case "signal":
                queue.signal(watermark(number))
                if went_in and isinstance(went_in[-1], TimeSignal) and went_in[-1] not in came_out:
                    went_in.pop()
                went_in.append(watermark(number))
            case "answer" if under_way:
                request = under_way.pop(random.randrange(len(under_way)))
                queue.on_answered(request, None, None)
            case "take":
                came_out += emptied(queue, 2)
        assert [each.record for each in queue.requests()] == [
            each for each in went_in if each not in came_out and not isinstance(each, TimeSignal)
        ]
    assert queue.empty
    assert _in_stretches(came_out) == _in_stretches(went_in)
    if ordered:
        assert came_out == went_in


def _in_stretches(events: list[Any]) -> list[Any]:
    """What lies between two signals, whatever its order there."""
    stretches: list[Any] = [set()]
    for event in events:
        if isinstance(event, TimeSignal):
            stretches += [event, set()]
        else:
            stretches[-1].add(event)
    return stretches
