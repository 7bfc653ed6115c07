"""One run of a query on one system, over events that are in files before it begins.

What counts is the same for all: from where the sources begin to read to where the job has ended, its last
checkpoint included; CPU time of all processes of the system in that time. Nobody makes events meanwhile.
Results are thrown away, but for a query that is about files.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import minirt as rt
from benchmarks.measure import run
from benchmarks.nexmark import flink_sql
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.files import ArrowEvents
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.source import BLOCK_EVENTS
from benchmarks.systems import FLINK_CLASSES, PEERS, watched

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs have in common: the events in a folder, and how they are processed."""

    folder: Path
    events: int
    parallelism: int
    checkpoint_ms: int
    """From one checkpoint to the next; 0 for none but the last."""


def minirt_run(query: Query, setting: Setting) -> Row:
    with tempfile.TemporaryDirectory() as place:
        env = rt.Environment(query.name, parallelism=setting.parallelism)
        found = query.stream(Events.of(env, ArrowEvents(setting.folder)))
        found.sink(_sink(query, Path(place, "out")), uid="results")
        options: dict[str, Any] = {"options": rt.Options(placement="slots")}
        if setting.checkpoint_ms:
            interval = f"{setting.checkpoint_ms}ms"
            options["checkpointing"] = rt.Checkpointing(Path(place, "checkpoints"), interval)
        measured = run(env, query.name, **options)
    usage = measured.cpu_s, measured.peak_rss_bytes
    checkpoints = measured.result.completed_checkpoints
    return _row(query, "minirt", setting, measured.running_s, usage, checkpoints)


def _sink(query: Query, folder: Path) -> rt.Sink:
    return rt.JsonlSink(folder, partition_by=query.folders) if query.folders else rt.DiscardSink()


def flink_run(query: Query, setting: Setting) -> Row:
    """Raises BenchmarkError."""
    with tempfile.TemporaryDirectory() as place:
        command = flink_command(query, setting, Path(place))
        lines, usage = watched(command, f"flink at {query.name}")
    began = min(line["started_at"] for line in lines if "started_at" in line)
    [ended] = [line for line in lines if "ended_at" in line]
    used = usage.cpu_s, usage.peak_rss_bytes
    return _row(query, "flink", setting, ended["ended_at"] - began, used, ended["checkpoints"])


def flink_command(query: Query, setting: Setting, place: Path) -> list[str]:
    """What runs the query; it keeps all it writes in the folder `place`, its files in `out`."""
    script = place / "query.sql"
    text = flink_sql.script(
        query.name, str(setting.folder), setting.events, BLOCK_EVENTS, setting.parallelism
    )
    script.write_text(text, encoding="utf-8")
    settings = {
        "sql": script,
        "parallelism": setting.parallelism,
        "checkpoint_ms": setting.checkpoint_ms,
        "storage": place / "checkpoints",
        "folders": ",".join(query.folders),
        "out": place / "out",
    }
    *java, _ = PEERS["flink"].command
    return [*java, "Nexmark", *(f"{name}={value}" for name, value in settings.items())]


SYSTEMS: Mapping[str, Callable[[Query, Setting], Row]] = {"minirt": minirt_run, "flink": flink_run}


def missing(system: str) -> str | None:
    """Why a system cannot run at all, or None."""
    if system == "minirt":
        return None
    peer, job = PEERS[system], FLINK_CLASSES / "Nexmark.class"
    return replace(peer, needs=(*peer.needs, job)).skipped("latency")


def skipped(query: Query, system: str) -> str | None:
    """Why a system does not run a query, or None."""
    return query.not_in_flink if system == "flink" else None


def _row(
    query: Query,
    system: str,
    setting: Setting,
    seconds: float,
    usage: tuple[float, int],
    checkpoints: int,
) -> Row:
    cpu_s, peak_rss_bytes = usage
    return {
        "query": query.name,
        "system": system,
        "events": setting.events,
        "seconds": seconds,
        "events_per_s": setting.events / seconds,
        "cpu_s_per_million": cpu_s / setting.events * 1e6,
        "peak_rss_bytes": peak_rss_bytes,
        "checkpoints": checkpoints,
    }


def shown(row: Row) -> str:
    """One run, for people."""
    return _line(row["query"], row["system"], row["events_per_s"], row["cpu_s_per_million"])


def _line(query: str, system: str, rate: float, cost: float) -> str:
    return f"{query:>4}  {system:<7}{rate:>12,.0f} events/s{cost:>9.2f} CPU s/M"


def summary(rows: Sequence[Row]) -> list[str]:
    """Medians of each query and system, how many times a peer's rate minirt reaches, and their mean."""
    medians: dict[tuple[str, str], tuple[float, float]] = {}
    for query, system in dict.fromkeys((row["query"], row["system"]) for row in rows):
        own = [row for row in rows if (row["query"], row["system"]) == (query, system)]
        rates, costs = (
            [row[name] for row in own] for name in ("events_per_s", "cpu_s_per_million")
        )
        medians[query, system] = statistics.median(rates), statistics.median(costs)
    lines, ratios = [], dict[str, list[float]]()
    for (query, system), (rate, cost) in medians.items():
        line = _line(query, system, rate, cost)
        if system != "minirt" and (query, "minirt") in medians:
            ratio = medians[query, "minirt"][0] / rate
            ratios.setdefault(system, []).append(ratio)
            line += f"  minirt is {ratio:.2f} x"
        lines.append(line)
    for system, of_all in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, of_all)))
        lines.append(
            f"geometric mean of {len(of_all)} queries: minirt is {mean:.2f} x {system}, "
            f"at least {min(of_all):.2f} x"
        )
    return lines
