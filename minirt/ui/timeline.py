"""Checkpoints as the page draws them: the last ones as a strip, and one by subtask."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median

from minirt.ui.reading import Plain

STRIP_MAX = 60
"""How many checkpoints a strip shows."""
ROWS_MAX = 24
"""How many subtasks are drawn of a checkpoint; the others are summed up by operator."""
REASON_MAX = 300
_PHASES = ("start_delay_s", "alignment_s", "sync_s", "async_s")
_SUBTASK = re.compile(r"(?P<name>.*) \((?P<number>\d+)/(?P<of>\d+)\)", re.DOTALL)


def strip(checkpoints: Sequence[Plain], end: int | None = None) -> Plain:
    """The newest checkpoints before number `end`, oldest first, and durations over all of them."""
    total = len(checkpoints)
    end = total if end is None else max(0, min(end, total))
    first = max(0, end - STRIP_MAX)
    shown = [_shortened(one) for one in checkpoints[first:end]]
    return {"first": first, "end": end, "total": total, "shown": shown}


def durations(checkpoints: Sequence[Plain]) -> Plain | None:
    """Median, 95th percentile and longest duration of those that completed, in seconds."""
    took = sorted(float(one["duration_s"]) for one in checkpoints if one["status"] == "completed")
    if not took:
        return None
    return {"p50": median(took), "p95": percentile(took, 0.95), "max": took[-1], "count": len(took)}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def timeline(checkpoint: Plain, vertices: Sequence[Plain], now: float | None = None) -> Plain:
    """A checkpoint by subtask, those that were the last on top, the missing ones above all.

    `now` is given for a checkpoint that is under way. All times are seconds since its trigger.
    """
    of = {vertex["id"]: vertex["parallelism"] for vertex in vertices}
    so_far = checkpoint.get("duration_s")
    if now is not None:
        so_far = max(0.0, now - checkpoint["triggered_at"])
    parts = sorted(checkpoint["subtasks"], key=lambda p: -float(p["acknowledged_after_s"]))
    limit = outlier_limit([float(part["acknowledged_after_s"]) for part in parts])
    missing = [_missing(name) for name in checkpoint["missing"]]
    drawn = missing[:ROWS_MAX]
    stored = parts[: ROWS_MAX - len(drawn)]
    rows = [*drawn, *(_row(part, of, limit) for part in stored)]
    return {
        **{key: checkpoint.get(key) for key in _OF_CHECKPOINT},
        "reason": _cut(checkpoint.get("reason")),
        "under_way": now is not None,
        "so_far_s": so_far,
        "rows": rows,
        "missing": len(missing),
        "subtasks": len(missing) + len(parts),
        "others": _others(parts[len(stored) :], len(missing) - len(drawn)),
    }


_OF_CHECKPOINT = (
    *("checkpoint_id", "generation", "mode", "kind", "status", "triggered_at"),
    *("bytes", "in_flight_bytes"),
)


def outlier_limit(took: Sequence[float]) -> float:
    """Above it, a subtask took unusually long: the 95th percentile, and 1.5 times the median at least."""
    if len(took) < 2:
        return float("inf")
    ordered = sorted(took)
    return max(percentile(ordered, 0.95), 1.5 * median(ordered))


def _row(part: Plain, of: Mapping[int, int], limit: float) -> Plain:
    took = part["acknowledged_after_s"]
    found = _SUBTASK.fullmatch(part["name"])
    return {
        "name": found["name"] if found else part["name"],
        "number": part["subtask"] + 1,
        "of": of.get(part["vertex"]) or (int(found["of"]) if found else None),
        "phases": [part[phase] for phase in _PHASES],
        "stored_s": took,
        "state_bytes": part["state_bytes"],
        "in_flight_bytes": part["in_flight_bytes"],
        "unaligned": part["unaligned"],
        "outlier": took >= limit,
        "missing": False,
    }


def _missing(name: str) -> Plain:
    """The row of a subtask whose part has not come, from its name in messages."""
    found = _SUBTASK.fullmatch(name)
    return {
        "name": found["name"] if found else name,
        "number": int(found["number"]) if found else None,
        "of": int(found["of"]) if found else None,
        "missing": True,
    }


def _others(parts: Sequence[Plain], missing: int) -> Plain | None:
    """What is not drawn, in three figures."""
    if not parts and missing <= 0:
        return None
    took = [float(part["acknowledged_after_s"]) for part in parts]
    return {
        "count": len(parts) + max(0, missing),
        "missing": max(0, missing),
        "median_s": median(took) if took else None,
        "max_s": max(took, default=None),
    }


def _shortened(checkpoint: Plain) -> Plain:
    return {**checkpoint, "reason": _cut(checkpoint["reason"])}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= REASON_MAX else f"{text[:REASON_MAX]} ..."
