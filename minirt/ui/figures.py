"""Operators, links and subtasks as the page shows them. Its size does not grow with the subtasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minirt.ui.reading import Plain

OPERATORS_MAX = 200
"""How many chains the graph shows, the first of the job's order."""
CELLS_MAX = 48
"""How many cells show the subtasks of an operator; with more subtasks, a cell is the busiest of several."""
RANKED_MAX = 10
"""How many subtasks a list names."""
TOP_MAX = 3
"""How many subtasks are named of each operator."""

_TIMES = {
    "busy": "busy_ms",
    "idle": "idle_ms",
    "soft": "soft_backpressure_ms",
    "hard": "hard_backpressure_ms",
    "drift": "drift_pause_ms",
}


def operators(figures: Plain, description: Plain) -> list[Plain]:
    """One for each vertex of the description, with the figures of its subtasks merged."""
    known = {operator["operator"]: operator for operator in figures["operators"]}
    vertices = description["vertices"][:OPERATORS_MAX]
    return [_operator(vertex, known.get(vertex["uids"][0])) for vertex in vertices]


def _operator(vertex: Plain, figures: Plain | None) -> Plain:
    told: Plain = {
        "id": vertex["id"],
        "name": vertex["name"],
        "uid": vertex["uids"][0],
        "uids": vertex["uids"],
        "parallelism": vertex["parallelism"],
        "times": None,
        "busiest": None,
        "records_in": None,
        "records_out": None,
        "queue_in": None,
        "queue_out": None,
        "lag_s": None,
        "latency": None,
        "skew": None,
        "cells": [],
        "top": [],
        "slowest_part": None,
    }
    if figures is None:
        return told
    subtasks, rates = figures["subtasks"], figures["per_second"]
    told["queue_in"] = figures.get("input_queue_use")
    told["queue_out"] = figures.get("output_queue_use")
    told["lag_s"] = figures.get("watermark_lag_s")
    told["latency"] = figures.get("latency")
    if rates is not None:
        told["times"] = {name: rates.get(of, 0.0) / 1000 for name, of in _TIMES.items()}
        told["records_in"], told["records_out"] = rates["records_in"], rates["records_out"]
    with_rates = [one for one in subtasks if one["per_second"] is not None]
    if with_rates:
        busiest = max(with_rates, key=_busy_ms)
        told["busiest"] = {"subtask": busiest["subtask"], "share": _busy_ms(busiest) / 1000}
        told["skew"] = skew(with_rates)
        told["cells"] = cells(with_rates)
        told["top"] = _busiest_of([_ranked(figures, one) for one in with_rates], TOP_MAX)
    told["slowest_part"] = _slowest_part(subtasks)
    return told


def skew(subtasks: Sequence[Plain]) -> Plain | None:
    """Which subtask takes in the most records, and which share of them all; None if it is the only one."""
    total = sum(one["per_second"]["records_in"] for one in subtasks)
    if len(subtasks) < 2 or total <= 0:
        return None
    most = max(subtasks, key=lambda one: float(one["per_second"]["records_in"]))
    share = most["per_second"]["records_in"] / total
    return {"subtask": most["subtask"], "share": share, "times_fair": share * len(subtasks)}


def cells(subtasks: Sequence[Plain]) -> list[Plain]:
    """Busy and backpressured shares of neighbouring subtasks, the busiest of each cell."""
    per_cell = -(-len(subtasks) // CELLS_MAX)
    groups = [subtasks[at : at + per_cell] for at in range(0, len(subtasks), per_cell)]
    told = []
    for group in groups:
        top = max(group, key=_busy_ms)
        told.append(
            {
                "first": group[0]["subtask"],
                "last": group[-1]["subtask"],
                "busy": round(_busy_ms(top) / 1000, 3),
                "blocked": round(max(map(_blocked_ms, group)) / 1000, 3),
            }
        )
    return told


def _slowest_part(subtasks: Iterable[Plain]) -> Plain | None:
    """How the newest checkpoint went in the subtask that was the last to store its part."""
    parts = [one for one in subtasks if one["checkpoint"] is not None]
    if not parts:
        return None
    last = max(parts, key=lambda one: float(one["checkpoint"]["stored_s"]))
    return {"subtask": last["subtask"], **last["checkpoint"]}


def links(description: Plain, shown: Sequence[Plain]) -> list[Plain]:
    """The links between the operators shown; a rate is None where the figures do not tell it.

    Subtasks count what they emit, once for each link, and what they take in, over all inputs.
    """
    by_id = {operator["id"]: operator for operator in shown}
    all_links = description["links"]
    into = _count(link["target"] for link in all_links)
    out_of = _count(link["source"] for link in all_links)
    told = []
    for link in all_links:
        source, target = by_id.get(link["source"]), by_id.get(link["target"])
        if source is None or target is None:
            continue
        rate = None
        if into[link["target"]] == 1:
            rate = target["records_in"]
        elif out_of[link["source"]] == 1:
            rate = source["records_out"]
        told.append({**link, "rate": rate, "out": source["queue_out"], "in": target["queue_in"]})
    return told


def busiest(figures: Plain) -> list[Plain]:
    """The subtasks that work most, over all operators."""
    return _busiest_of(_all_ranked(figures), RANKED_MAX)


def _busiest_of(ranked: Iterable[Plain], most: int) -> list[Plain]:
    found = [one for one in ranked if one["busy"] is not None]
    return sorted(found, key=lambda one: -float(one["busy"]))[:most]


def lagging(figures: Plain) -> list[Plain]:
    """The subtasks whose event time is the furthest behind, over all operators."""
    found = [one for one in _all_ranked(figures) if one["lag_s"] is not None]
    return sorted(found, key=lambda one: -float(one["lag_s"]))[:RANKED_MAX]


def _all_ranked(figures: Plain) -> Iterator[Plain]:
    for operator in figures["operators"]:
        for subtask in operator["subtasks"]:
            yield _ranked(operator, subtask)


def _ranked(operator: Plain, subtask: Plain) -> Plain:
    rates = subtask["per_second"]
    return {
        "name": operator["name"],
        "uid": operator["operator"],
        "subtask": subtask["subtask"],
        "of": operator["parallelism"],
        "pid": subtask["pid"],
        "busy": None if rates is None else rates["busy_ms"] / 1000,
        "blocked": None if rates is None else _blocked_ms(subtask) / 1000,
        "records_in": None if rates is None else rates["records_in"],
        "lag_s": subtask["watermark_lag_s"],
    }


def point(description: Plain, shown: Sequence[Plain], at: float) -> Plain:
    """What the lines over time show of one moment.

    Records/s of sources and of ends, the lag, the fullest queue, and latencies of the end to which they are
    longest.
    """
    targets = {link["target"] for link in description["links"]}
    senders = {link["source"] for link in description["links"]}
    sources = [o for o in shown if o["id"] not in targets]
    ends = [o for o in shown if o["id"] not in senders]
    return {
        "at": at,
        "read": _sum(o["records_out"] if o["id"] in senders else o["records_in"] for o in sources),
        "written": _sum(o["records_in"] for o in ends),
        "lag_s": max((o["lag_s"] for o in shown if o["lag_s"] is not None), default=None),
        **{name: _longest(ends, name) for name in ("p50_s", "p99_s")},
        "queue": max((o["queue_in"] for o in shown if o["queue_in"] is not None), default=None),
    }


def _longest(ends: Iterable[Plain], share: str) -> float | None:
    known = [one["latency"] for one in ends if one["latency"] is not None]
    return max((each[share] for each in known if each[share] is not None), default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _count(ids: Iterable[int]) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    for id in ids:
        counts[id] = counts.get(id, 0) + 1
    return counts


def _busy_ms(subtask: Plain) -> float:
    return float(subtask["per_second"]["busy_ms"])


def _blocked_ms(subtask: Plain) -> float:
    rates: dict[str, Any] = subtask["per_second"]
    return float(rates["soft_backpressure_ms"] + rates["hard_backpressure_ms"])
