"""A checkpoint as a Chrome trace, for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minirt.pictures.critical_path import critical_path
from minirt.pictures.timeline import Lane, Timeline
from minirt.pictures.words import heading, step_in_words

_PATH_PROCESS = 1


def chrome_trace(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """The JSON object format: a process an operator, a thread a subtask, flows for barriers."""
    events: list[dict[str, Any]] = []
    for number, timeline in enumerate(timelines):
        events += _events(timeline, first=1000 * number, flows=1_000_000 * number)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(timeline: Timeline, first: int, flows: int) -> Iterator[dict[str, Any]]:
    title = heading(timeline)
    yield _name("process_name", first + _PATH_PROCESS, 0, f"{title}: critical path")
    for step in critical_path(timeline):
        words = step_in_words(timeline, step)
        yield _span(first + _PATH_PROCESS, 0, words, step.start, step.end)
    for lane in timeline.lanes:
        process, thread = first + _PATH_PROCESS + 1 + lane.vertex, lane.subtask
        chain = lane.name.rpartition(" (")[0] or lane.name
        yield _name("process_name", process, thread, f"{title}: {chain}")
        yield _name("thread_name", process, thread, lane.name)
        for name, start, end in _stages(lane):
            yield _span(process, thread, name, start, end)
        for channel in lane.channels:
            if channel.sender is None or channel.sent is None or channel.arrived is None:
                continue
            sender = timeline.lanes[channel.sender]
            flows += 1
            sends = first + _PATH_PROCESS + 1 + sender.vertex
            name = "barrier" if lane.local is None else "mark"
            yield _flow("s", name, flows, sends, sender.subtask, channel.sent)
            yield _flow("f", name, flows, process, thread, max(channel.sent, channel.arrived))
            if channel.reached is not None:
                name = f"barrier of {sender.name} in the input queue"
                yield _async("b", flows, process, thread, name, channel.arrived)
                yield _async("e", flows, process, thread, name, channel.reached)
            if channel.blocked is not None:
                name, key = f"channel of {sender.name} is blocked", flows + 500_000
                yield _async("b", key, process, thread, name, channel.blocked[0])
                yield _async("e", key, process, thread, name, channel.blocked[1])


def _stages(lane: Lane) -> Iterator[tuple[str, float, float]]:
    if lane.local is not None:
        waits = f"local snapshot {lane.local} waits for its line"
        yield waits, lane.at("snapshot"), lane.at("upload")
        yield "what is in transit is stored", lane.at("upload"), lane.at("stored")
        return
    yield "synchronous part", lane.at("sent"), lane.at("snapshot")
    yield "waits for barriers, or for the uploader", lane.at("snapshot"), lane.at("upload")
    yield "asynchronous part", lane.at("upload"), lane.at("stored")


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _span(process: int, thread: int, name: str, start: float, end: float) -> dict[str, Any]:
    times = {"ts": start * 1e6, "dur": max(0.0, end - start) * 1e6}
    return {"ph": "X", "name": name, "cat": "checkpoint", "pid": process, "tid": thread, **times}


def _flow(phase: str, name: str, key: int, process: int, thread: int, at: float) -> dict[str, Any]:
    place = {"pid": process, "tid": thread, "ts": at * 1e6}
    return {"ph": phase, "name": name, "cat": "barrier", "id": key, **place}


def _async(phase: str, key: int, process: int, thread: int, name: str, at: float) -> dict[str, Any]:
    place = {"pid": process, "tid": thread, "ts": at * 1e6}
    return {"ph": phase, "name": name, "cat": "channel", "id": key, **place}
