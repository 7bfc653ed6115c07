"""`minirt bench`: what this machine makes of a few small jobs."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.cli.arguments import Json
from minirt.cli.live_line import LiveLine

if TYPE_CHECKING:
    from minirt.protocol.reports import CheckpointReport

SECONDS = 3.0


def bench(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600.0, help="How long each measurement takes, about.")
    ] = SECONDS,
    json: Json = False,
) -> None:
    """Measure this machine: records a second, checkpoints in each mode while all queues are full, recovery.

    Two subtasks of each operator, in processes of their own. It is a quick look: the figures of a
    machine that does other work as well are lower, and short runs differ.
    """
    from minirt.cli.bench_jobs import CASES, checkpoints_under_backpressure, records_per_s
    from minirt.cli.bench_recovery import recoveries_s
    from minirt.modes import MODES

    line = LiveLine(sys.stderr)
    throughput, modes = [], []
    with line.logging("error"):  # A checkpoint that fails because its job was cancelled is no news.
        try:
            for case, make in CASES.items():
                line.update(f"{case} ...")
                rate = records_per_s(make(), seconds)
                throughput.append({"case": case, "records_per_s": round(rate)})
            for mode in MODES:
                line.update(f"checkpoints in mode {mode} ...")
                modes.append(_summary(mode, checkpoints_under_backpressure(mode, seconds)))
            line.update("recovery ...")
            recovery = _recovery(recoveries_s(seconds))
        finally:
            line.close()
    if json:
        found = {"throughput": throughput, "checkpoints": modes, "recovery": recovery}
        typer.echo(json_format.dumps({**found, "measured_elsewhere": _elsewhere()}, indent=2))
        return
    _print(throughput, modes, recovery)


def _summary(mode: str, reports: Sequence[CheckpointReport]) -> dict[str, Any]:
    import statistics

    durations = [report.duration_s for report in reports]
    captured = [report.in_flight_bytes for report in reports]
    return {
        "mode": mode,
        "checkpoints": len(reports),
        "median_s": statistics.median(durations) if durations else None,
        "longest_s": max(durations, default=None),
        "in_flight_bytes": round(statistics.mean(captured)) if captured else None,
    }


def _recovery(durations: Sequence[float]) -> dict[str, Any]:
    """From SIGKILL of a worker to the first record at a sink."""
    import statistics

    return {
        "kills": len(durations),
        "median_s": statistics.median(durations),
        "longest_s": max(durations),
    }


def _elsewhere() -> list[dict[str, Any]]:
    from minirt.cli.bench_peers import MACHINE, checkpoint_rows, rows

    return [
        *(
            {"case": case, "system": system, "records_per_s": rate, "measured_on": MACHINE}
            for case, system, rate in rows()
        ),
        *(
            {"case": case, "system": system, "checkpoint_s": median_s, "measured_on": MACHINE}
            for case, system, median_s in checkpoint_rows()
        ),
    ]


def _print(
    throughput: list[dict[str, Any]], modes: list[dict[str, Any]], recovery: dict[str, Any]
) -> None:
    from minirt.cli.bench_peers import MACHINE, checkpoint_rows, rows
    from minirt.cli.checkpoint_table import duration
    from minirt.cli.tables import print_table

    print_table("throughput", ("job", "records/s"), [list(row.values()) for row in throughput])
    print_table(
        f"benchmarks of these names, not measured now but on another machine ({MACHINE})",
        ("job", "system", "records/s"),
        [list(row) for row in rows()],
    )
    print_table(
        "checkpoints while all queues are full",
        ("mode", "completed", "median", "longest", "bytes in flight"),
        [
            [
                *(row["mode"], row["checkpoints"]),
                *(None if row[n] is None else duration(row[n]) for n in ("median_s", "longest_s")),
                row["in_flight_bytes"],
            ]
            for row in modes
        ],
    )
    print_table(
        f"benchmarks.modes, not measured now but on another machine ({MACHINE})",
        ("job", "system", "checkpoint, median"),
        [[case, system, duration(median_s)] for case, system, median_s in checkpoint_rows()],
    )
    print_table(
        "recovery: SIGKILL of a worker to the first record at a sink",
        ("kills", "median", "longest"),
        [[recovery["kills"], duration(recovery["median_s"]), duration(recovery["longest_s"])]],
    )
