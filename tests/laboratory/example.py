"""A comparison made up for tests: two modes, three runs of each, with a kill in every run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from minirt.laboratory.matrix import Choice, Setting, labels
from minirt.laboratory.measured import (
    CheckpointMeasured,
    Comparison,
    KillMeasured,
    LatencyMeasured,
    OperatorMeasured,
    PartMeasured,
    Run,
    Series,
    SinkTreatment,
    Verification,
)

SECONDS = 10.0


def comparison(
    settings: Sequence[Setting] = (Setting("aligned"), Setting("unaligned")),
    repeat: int = 3,
    subtasks: int = 2,
    kills: int = 1,
) -> Comparison:
    runs = tuple(
        run(place, number, one.mode, subtasks, kills)
        for number in range(repeat)
        for place, one in enumerate(settings)
    )
    return Comparison(
        title="sums",
        command="minirt compare job.py --kill every=4s",
        target="job.py",
        workload=None,
        settings=tuple(settings),
        labels=labels(settings),
        seconds=SECONDS,
        warm_up_s=2.0,
        repeat=repeat,
        kill_every_s=4.0 if kills else None,
        latency_from="made",
        seed=7,
        started_at="2026-01-02T03:04:05+00:00",
        complete=True,
        machine={"cores": 2, "processor": "made up", "memory_bytes": 8_000_000_000},
        versions={"python": "3.11", "minirt": "0.1.0"},
        notes=("A checkpoint every 1 s, in place of 10 s.",),
        sinks=(SinkTreatment("out", "JsonlSink", "redirected", "writes elsewhere"),),
        runs=runs,
    )


def crossed() -> Comparison:
    """As many settings as a plot shows and more, some of them with long names."""
    settings = [
        Setting(
            mode, count, (Choice("options.debloat", debloat), Choice("record_ms", ms, "parameter"))
        )
        for debloat in ("off", "1s")
        for ms in ("0.1",)
        for count in (2,)
        for mode in ("aligned", "unaligned", "aligned_with_timeout", "at_least_once", "of_others")
    ]
    return comparison(settings, repeat=2, subtasks=100)


@cache
def page_of_many_settings() -> str:
    """The report of them; drawing its plots takes seconds."""
    from minirt.laboratory.report import to_html

    return to_html(crossed())


def run(setting: int, number: int, mode: str, subtasks: int, kills: int) -> Run:
    draw = random.Random(f"{setting} {number}")
    slow = mode != "unaligned"
    checkpoints = tuple(checkpoint(place, draw, slow, subtasks) for place in range(int(SECONDS)))
    at = tuple(step / 4 for step in range(40))
    rate = [0.0 if kills and 4 < moment < 5 else 900 + 200 * draw.random() for moment in at]
    return Run(
        setting=setting,
        repeat=number,
        seed=7 + number,
        started_at="2026-01-02T03:04:05+00:00",
        ended="time is up",
        error="",
        measured_s=SECONDS,
        start_s=2.5,
        restarts=kills,
        source_records=10_000,
        sink_records=9_800 + number,
        committed_records=9_000,
        cpu_s=8.0 + draw.random(),
        peak_rss_bytes=400_000_000 + number,
        latency=LatencyMeasured(9_800, 1.1 + draw.random(), 2.5, 3.0),
        visible_after=LatencyMeasured(9_000, 2.1, 3.5, 4.0),
        verification=Verification("passed", "9,800 records expected by their numbers", 9_800, 0, 0),
        operators=(
            OperatorMeasured("numbers", "numbers", subtasks, 0.1, 0.0, 0.9, 0.0, 0.12),
            OperatorMeasured("slow", "slow > out", subtasks, 0.98, 0.02, 0.0, 0.0, 0.99),
        ),
        checkpoints=checkpoints,
        kills=tuple(
            KillMeasured(
                4.0, ("slow (1/2)",), 3, 0.4, 0.4 + 0.1 * number, 1.5 if number else None, 80
            )
            for _ in range(kills)
        ),
        series=(
            Series("records at sinks", "per s", at, tuple(rate)),
            Series("queued bytes", "bytes", at, tuple(1e6 + 1e5 * draw.random() for _ in at)),
            Series("backpressure", "share", at, tuple(0.8 + 0.1 * draw.random() for _ in at)),
            Series("latency p50", "s", at, tuple(1 + draw.random() for _ in at)),
            Series("latency p99", "s", at, tuple(2 + draw.random() for _ in at)),
        ),
    )


def checkpoint(place: int, draw: random.Random, slow: bool, subtasks: int) -> CheckpointMeasured:
    delay = draw.uniform(1.5, 2.0) if slow else draw.uniform(0.002, 0.01)
    names = [
        f"{name} ({n + 1}/{subtasks})"
        for name in ("numbers", "slow > out")
        for n in range(subtasks)
    ]
    parts = tuple(
        PartMeasured(
            name, 0, delay * draw.random(), 0.001, 0.001, 0.004, 120, 0 if slow else 90_000
        )
        for name in names
    )
    held = sum(part.in_flight_bytes for part in parts)
    return CheckpointMeasured(
        checkpoint_id=place + 1,
        at_s=place + 0.5,
        duration_s=delay + 0.01,
        completed=True,
        kind="checkpoint",
        reason="",
        bytes=1_000 + held,
        in_flight_bytes=held,
        state_bytes=120 * len(parts),
        parts=parts,
    )
