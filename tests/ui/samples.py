"""Hand-made figures: a source, a slow operator of four subtasks, a sink."""

from __future__ import annotations

from typing import Any

from minirt.errors import ConfigurationError, MinirtError
from minirt.ui.reading import Plain, Reading

NOW = 1_700_000_000.0


def subtask(
    index: int,
    busy: float,
    waits: float = 0.0,
    records: float = 100.0,
    lag_s: float | None = None,
    stored_s: float | None = None,
) -> Plain:
    part = None
    if stored_s is not None:
        part = {"start_delay_s": stored_s * 0.8, "alignment_s": 0.0, "sync_s": 0.001}
        part |= {"async_s": stored_s * 0.1, "stored_s": stored_s}
    return {
        "subtask": index,
        "pid": 4000 + index,
        "per_second": {
            "busy_ms": 1000 * busy,
            "idle_ms": 1000 * (1 - busy - waits),
            "soft_backpressure_ms": 1000 * waits,
            "hard_backpressure_ms": 0.0,
            "records_in": records,
            "records_out": records,
        },
        "watermark_lag_s": lag_s,
        "checkpoint": part,
    }


def operator(uid: str, subtasks: list[Plain], **more: Any) -> Plain:
    def mean(name: str) -> float:
        return sum(float(one["per_second"][name]) for one in subtasks) / len(subtasks)

    rates = {name: mean(name) for name in subtasks[0]["per_second"]}
    for name in ("records_in", "records_out"):
        rates[name] *= len(subtasks)
    lags = [one["watermark_lag_s"] for one in subtasks if one["watermark_lag_s"] is not None]
    return {
        "operator": uid,
        "name": f"{uid} chain",
        "parallelism": len(subtasks),
        "per_second": rates,
        "input_queue_use": 0.5,
        "output_queue_use": 0.25,
        "watermark_lag_s": max(lags, default=None),
        "subtasks": subtasks,
        **more,
    }


def description(*operators: Plain, links: list[tuple[int, int]] | None = None) -> Plain:
    pairs = [(at, at + 1) for at in range(len(operators) - 1)] if links is None else links
    return {
        "vertices": [
            {
                "id": id,
                "name": one["name"],
                "uids": [one["operator"]],
                "parallelism": one["parallelism"],
            }
            for id, one in enumerate(operators)
        ],
        "links": [{"source": a, "target": b, "kind": "rebalance"} for a, b in pairs],
        "storage": "/stored",
        "configuration": {"checkpointing.mode": "aligned"},
    }


def checkpoint(id: int, took: float = 0.1, **more: Any) -> Plain:
    """A summary."""
    return {
        "checkpoint_id": id,
        "generation": 1,
        "mode": "aligned",
        "kind": "checkpoint",
        "triggered_at": NOW - 100 + id,
        "duration_s": took,
        "bytes": 1000,
        "in_flight_bytes": 0,
        "status": "completed",
        "reason": None,
        "unaligned": False,
        "stored": None,
        **more,
    }


def parts(count: int, slow: int = 0) -> list[Plain]:
    """How a checkpoint went in so many subtasks of vertex 1; number `slow` took ten times as long."""
    return [
        {
            "name": f"slow chain ({index + 1}/{count})",
            "vertex": 1,
            "subtask": index,
            "start_delay_s": 0.01,
            "alignment_s": 0.02,
            "sync_s": 0.001,
            "async_s": 0.01,
            "acknowledged_after_s": 1.0 if index == slow else 0.1,
            "state_bytes": 10,
            "in_flight_bytes": 0,
            "unaligned": False,
        }
        for index in range(count)
    ]


def figures(*operators: Plain, **more: Any) -> Plain:
    checkpoints = {"completed": 0, "failed": 0, "newest": None, "last_failure": None}
    return {
        "name": "sample",
        "status": "running",
        "generation": 1,
        "restarts": 0,
        "started_at": NOW - 60,
        "at": NOW,
        "last_failure": None,
        "operators": list(operators),
        "checkpoints": {**checkpoints, "under_way": []} | more.pop("checkpoints", {}),
        **more,
    }


SOURCE = operator("numbers", [subtask(0, busy=0.1, waits=0.86)])
SLOW = operator(
    "slow",
    [
        subtask(0, busy=0.2, records=10),
        subtask(1, busy=0.3, records=10, lag_s=2.5),
        subtask(2, busy=0.99, records=70, lag_s=40.0),
        subtask(3, busy=0.2, records=10),
    ],
)
SINK = operator("out", [subtask(0, busy=0.05)])


def reading(*operators: Plain, **more: Any) -> Reading:
    chosen = operators or (SOURCE, SLOW, SINK)
    told = more.pop("figures", None) or figures(*chosen)
    uses = ("savepoint", "stop", "cancel")
    return Reading(told, description(*chosen), **{"uses": uses, **more})


class Known:
    """A job that is always the same, and notes what it is told to do."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Plain]] = []
        self.reads = 0
        self.reading = reading(checkpoints=[checkpoint(id) for id in range(1, 101)])

    def read(self) -> Reading:
        self.reads += 1
        return self.reading

    def checkpoint(self, checkpoint_id: int, generation: int) -> Plain:
        if checkpoint_id != 7:
            raise ConfigurationError(f"nobody remembers checkpoint {checkpoint_id}")
        return {**checkpoint(7), "subtasks": parts(4), "missing": []}

    def act(self, action: str, arguments: Plain) -> Plain:
        if arguments.get("path") == "full":
            raise MinirtError("no savepoint: the disk is full")
        self.done.append((action, arguments))
        return {"path": "stored/7"}
