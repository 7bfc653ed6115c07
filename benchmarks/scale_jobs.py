"""Whole jobs at growing parallelism, in each mode, beside peers: part of `benchmarks.scale`.

The job is `checkpointing-time` of the laboratory without the pause for each record: a source, a map and a
sink with a shuffle before each of the last two, and small queues. It has as many subtasks of each as its
parallelism, and so twice the square of that in channels. Sources read as much as they can, so all queues
are full.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import milliseconds
from minirt.errors import ConfigurationError
from minirt.laboratory import bench, matrix
from minirt.laboratory.matrix import MINIRT, Choice, Setting
from minirt.laboratory.measured import Run
from minirt.laboratory.peer import Peer
from minirt.laboratory.trial import RunRequest

WORKLOAD = "checkpointing-time"
WARM_UP_S = 2.0
QUEUE = "4KiB"
"""What each end of a channel may hold. With more, thousands of channels hold work for longer than a run."""


def settings(
    modes: Sequence[str],
    parallelisms: Sequence[int],
    workers: int,
    interval: str,
    peers: Sequence[Peer],
) -> list[Setting]:
    """Each mode at each parallelism, and in each peer that has it; those of one parallelism in turn."""
    every = Choice("checkpointing.interval", interval)
    record_ms = Choice("record_ms", "0", "parameter")
    shared = (
        Choice("options.placement", "slots"),
        Choice("options.workers", str(workers)),
        Choice("limits.input_queue_bytes", QUEUE),
        Choice("limits.output_queue_bytes", QUEUE),
    )
    return [
        setting
        for parallelism in parallelisms
        for setting in (
            *(Setting(mode, parallelism, (every, *shared, record_ms)) for mode in modes),
            *(
                Setting(mode, parallelism, (every, record_ms), peer.name)
                for peer in peers
                for mode in modes
                if mode in peer.modes
            ),
        )
    ]


def measure(
    chosen: Sequence[Setting], peers: Sequence[Peer], seconds: float, repeat: int
) -> list[dict[str, Any]]:
    """A row for each run. Raises ConfigurationError before the first one for what cannot run."""
    for peer in peers:
        if (missing := peer.missing()) is not None:
            raise ConfigurationError(missing)
    requests = tuple(
        RunRequest(None, WORKLOAD, setting, seconds, WARM_UP_S, None, None, 0, "")
        for setting in chosen
    )
    plan = bench.Plan(requests, matrix.turns(len(chosen), repeat), 7)
    bench.check(plan)
    rows: list[dict[str, Any]] = []

    def keep(run: Run) -> None:
        rows.append(row_of(chosen[run.setting], run))
        print(f"{len(rows)} of {len(plan.turns)}: {rows[-1]}", file=sys.stderr, flush=True)

    bench.make_runs(plan, keep, lambda done, run_s, left_s: None)
    return rows


def row_of(setting: Setting, run: Run) -> dict[str, Any]:
    """What was measured; rows by the CPU time of all processes say more on a busy machine."""
    assert setting.parallelism is not None
    completed = [one for one in run.checkpoints if one.completed]
    durations = milliseconds(one.duration_s for one in completed)
    return {
        "system": setting.system,
        "mode": setting.mode,
        "parallelism": setting.parallelism,
        "channels": 2 * setting.parallelism**2,
        "rows_per_s": round(run.sink_records / run.measured_s) if run.measured_s else 0,
        "rows_per_cpu_s": round(run.sink_records / run.cpu_s) if run.cpu_s else 0,
        "checkpoints": len(completed),
        "checkpoint_ms": durations or dict.fromkeys(("p50", "p95", "max")),
        "peak_rss_mb": round(run.peak_rss_bytes / 2**20),
        "wrong": run.error if setting.system != MINIRT else run.error or _wrong(run),
    }


def _wrong(run: Run) -> str:
    return "" if run.verification.verdict == "passed" else run.verification.words
