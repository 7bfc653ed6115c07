"""Checkpoints of the job of `benchmarks.modes` in Flink, as its REST interface tells of them."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks.measure import milliseconds
from benchmarks.systems import PEERS, BenchmarkError

MODES = ("aligned", "unaligned")

_FULL_S = 5.0
"""How long it takes until all queues are full; checkpoints that were triggered before do not count."""

_START_S = 10.0
"""How long the subtasks may take to start."""

_PATIENCE_S = 60.0
"""How much longer its process may take than it was told to, as it must start, on a busy machine."""

_ENDLESS = 10**15
_FLINK = PEERS["flink"]


def missing() -> str | None:
    """Why it cannot run, or None."""
    return _FLINK.skipped("latency")


def measure(
    mode: str,
    slow: str,
    record_ms: float,
    parallelism: int,
    keys: int,
    interval_ms: int,
    checkpoints: int,
    seconds: float,
) -> dict[str, Any]:
    """One row, after so many checkpoints or seconds with full queues. Raises BenchmarkError."""
    with tempfile.TemporaryDirectory() as storage:
        settings = {
            "work": "backpressure",
            "records": _ENDLESS,
            "keys": keys,
            "parallelism": parallelism,
            "checkpoint_ms": interval_ms,
            "buffer_timeout_ms": 100,
            "mode": mode,
            "slow": slow,
            "record_ms": record_ms,
            "enough": checkpoints + round(_FULL_S * 1000 / interval_ms),
            "seconds": seconds + _FULL_S + _START_S,
            "rest_port": _free_port(),
            "storage": storage,
        }
        arguments = [f"{name}={value}" for name, value in settings.items()]
        ended = subprocess.run(
            [*_FLINK.command, *arguments],
            capture_output=True,
            text=True,
            timeout=seconds + _FULL_S + _START_S + _PATIENCE_S,
        )
    answers = [line for line in ended.stdout.splitlines() if line.startswith('{"counts"')]
    if not answers:
        raise BenchmarkError(
            f"flink failed at checkpoints under backpressure: {ended.stderr[-2000:]}"
        )
    return _row(mode, slow, record_ms, parallelism, json.loads(answers[0])["history"])


def _row(
    mode: str, slow: str, record_ms: float, parallelism: int, history: list[Mapping[str, Any]]
) -> dict[str, Any]:
    began = min((entry["trigger_timestamp"] for entry in history), default=0)
    measured = [
        entry
        for entry in history
        if entry["status"] == "COMPLETED" and entry["trigger_timestamp"] >= began + _FULL_S * 1000
    ]
    durations = milliseconds(entry["end_to_end_duration"] / 1000 for entry in measured)
    return {
        "system": _FLINK.name,
        "mode": mode,
        "slow": slow,
        "record_ms": record_ms,
        "parallelism": parallelism,
        "checkpoints": len(measured),
        "duration_ms": durations or dict.fromkeys(("p50", "p95", "max")),
        "in_flight_bytes": _mean(measured, "persisted_data"),
        "state_bytes": _mean(measured, "state_size"),
    }


def _mean(entries: list[Mapping[str, Any]], name: str) -> float | None:
    return round(statistics.mean(entry[name] for entry in entries)) if entries else None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port: int = listener.getsockname()[1]
    return port
