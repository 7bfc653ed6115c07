"""One moment of a job as the page gets it: everything that is on the screen, bounded in size."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

from minirt.monitoring.causes import shortened
from minirt.ui import figures, timeline
from minirt.ui.reading import Plain, Reading
from minirt.ui.verdict import Facts, in_short, verdict

POINTS_MAX = 300
"""How many moments the lines over time show: five minutes of one a second."""
EVENTS_MAX = 20
LOGS_MAX = 50
"""How many messages are on the page; `TEXT_MAX` of `minirt.monitoring.log_lines` bounds each."""
EVENT_TEXT_MAX = 4000


class Course:
    """The lines over time, kept by the page's server so that the job need not."""

    def __init__(self) -> None:
        self._points: deque[Plain] = deque(maxlen=POINTS_MAX)

    def add(self, point: Plain) -> None:
        if not self._points or point["at"] > self._points[-1]["at"]:
            self._points.append(point)

    @property
    def points(self) -> list[Plain]:
        return list(self._points)


def snapshot(reading: Reading, course: Course) -> Plain:
    """What the page shows of a reading."""
    told, description = reading.figures, reading.description
    operators = figures.operators(told, description)
    links = figures.links(description, operators)
    events = [_event(event) for event in reading.events[-EVENTS_MAX:]]
    facts = Facts(told, operators, links, reading.under_way, events, reading.live)
    sentences, failure = verdict(facts), told["checkpoints"]["last_failure"]
    if reading.live:
        course.add(figures.point(description, operators, told["at"]))
    return {
        "job": {
            key: told[key]
            for key in ("name", "status", "generation", "restarts", "started_at", "at")
        }
        | {"comebacks": told.get("comebacks", 0)},
        "live": reading.live,
        "note": reading.note,
        "actions": list(reading.uses),
        "verdict": [asdict(sentence) for sentence in sentences],
        "advice": _advice(reading) if any(one.level != "good" for one in sentences) else None,
        "operators": operators,
        "operators_left_out": len(description["vertices"]) - len(operators),
        "links": links,
        "busiest": figures.busiest(told),
        "lagging": figures.lagging(told),
        "checkpoints": {key: told["checkpoints"][key] for key in ("completed", "failed")}
        | {"last_failure": None if failure is None else in_short(failure)},
        "durations": timeline.durations(reading.checkpoints),
        "strip": timeline.strip(reading.checkpoints),
        "timelines": _timelines(reading),
        "events": events,
        "logs": list(reading.logs[-LOGS_MAX:]),
        "course": course.points,
        "latency_interval_s": told.get("latency_interval_s"),
        "configuration": description["configuration"],
        "storage": description["storage"],
    }


def _advice(reading: Reading) -> str | None:
    """The command that says what would help; it reads what storage remembers of the job."""
    storage = reading.description["storage"]
    if storage is None:
        return None
    return f"minirt advise {shlex.quote(reading.figures['name'] if reading.live else storage)}"


def _timelines(reading: Reading) -> list[Plain]:
    """Those of the checkpoints under way, or else of the newest."""
    vertices: Sequence[Plain] = reading.description["vertices"]
    if reading.under_way:
        at = reading.figures["at"]
        return [timeline.timeline(one, vertices, at) for one in reading.under_way]
    return [] if reading.newest is None else [timeline.timeline(reading.newest, vertices)]


def _event(event: Plain) -> Plain:
    cause = event.get("cause")
    text = None if cause is None else shortened(cause, EVENT_TEXT_MAX)
    short = None if cause is None else in_short(cause)
    known = {key: event.get(key) for key in ("at", "event", "generation")}
    return {**known, "cause": text, "short": short}
