"""The systems that are compared, and how one run of one of them is measured, from outside.

Each run is a process of its own, with the processes that it starts. Peers live in environments below
`.bench`, which `make bench-peers` fills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import Usage
from benchmarks.workload import BUCKET_NS, Check, Tally, Work, expected, record_unit

ROOT = Path(__file__).parent.parent
BENCH = ROOT / ".bench"

_SHOWN_OUTPUT = 2000
"""How many characters of what a failed system wrote are shown."""


class BenchmarkError(Exception):
    """A system failed, or its results are wrong."""


@dataclass(frozen=True)
class System:
    """`command` starts it, for the works that it knows."""

    name: str
    works: frozenset[str]
    command: tuple[str, ...]
    needs: tuple[Path, ...] = ()
    """Paths that exist once the system is installed."""
    share: int = 1
    """A slow system processes one record of so many, so that a run ends; rates are compared, not times."""

    def skipped(self, work: str) -> str | None:
        """Why it cannot run, or None."""
        if work not in self.works:
            return f"{self.name} has no such job"
        for path in self.needs:
            if not path.exists():
                return f"{self.name} is not installed ({path} is missing): run `make bench-peers`"
        return None

    def given(self, work: Work) -> Work:
        """The work with this system's share of the records."""
        unit = record_unit(work.work, work.keys)
        return replace(work, records=max(unit, work.records // self.share // unit * unit))


def _works(*names: str) -> frozenset[str]:
    return frozenset(names)


_COLUMN_WORKS = _works("keyed-sum", "keyed-sum-str", "filter-project", "tumbling-count")
_FLINK = BENCH / "flink"
FLINK_LIBRARIES = _FLINK / "lib/python3.11/site-packages/pyflink/lib"
FLINK_CLASSES = BENCH / "flink-classes"


def peer_python(environment: str) -> Path:
    """The interpreter of a peer's environment, whether it is there or not."""
    return BENCH / environment / "bin" / "python"


def _peer(
    name: str, works: frozenset[str], share: int = 1, environment: str | None = None
) -> System:
    python = peer_python(environment or name)
    return System(
        name, works, (str(python), "-m", f"benchmarks.peers.{name}_peer"), (python,), share
    )


MINIRT = System(
    "minirt",
    _COLUMN_WORKS | _works("keyed-sum-rows", "keyed-pass", "interval-join", "latency"),
    (sys.executable, "-m", "benchmarks.jobs"),
)

PEERS: Mapping[str, System] = {
    peer.name: peer
    for peer in (
        replace(
            MINIRT,
            name="minirt-numpy",
            command=(*MINIRT.command, "kernels=numpy"),
            works=_COLUMN_WORKS | _works("keyed-pass"),
        ),
        replace(
            MINIRT,
            name="minirt-on-demand",
            command=(*MINIRT.command, "flush=on_demand"),
        ),
        replace(
            MINIRT,
            name="minirt-processes",
            command=(*MINIRT.command, "placement=subtask"),
        ),
        replace(MINIRT, name="minirt-wide", command=(*MINIRT.command, "workers=parallelism")),
        replace(
            MINIRT,
            name="minirt-long-queues",
            command=(*MINIRT.command, "row_queues=long"),
            works=_works("keyed-sum-rows", "latency"),
        ),
        replace(MINIRT, name="minirt-traced", command=(*MINIRT.command, "trace=true")),
        System(
            "flink",
            _COLUMN_WORKS | _works("latency"),
            ("java", "-Xmx6g", "-cp", f"{FLINK_CLASSES}:{FLINK_LIBRARIES}/*", "Peer"),
            (FLINK_LIBRARIES, FLINK_CLASSES / "Peer.class"),
        ),
        _peer("pyflink", _works("keyed-sum-rows"), share=50, environment="flink"),
        _peer("bytewax", _works("keyed-sum-rows"), share=4),
        _peer("pathway", _works("keyed-sum", "keyed-sum-str"), share=10),
        _peer("spark", _COLUMN_WORKS),
        System(
            "plain",
            _works("keyed-sum-rows"),
            (sys.executable, "-m", "benchmarks.peers.plain_peer"),
        ),
    )
}
"""`plain` is the same work by hand: what Python itself reaches."""


@dataclass(frozen=True)
class Run:
    """What one run of a system took. Rates and CPU count from the first record on."""

    records: int
    seconds: float
    cpu_s: float
    peak_rss_bytes: int
    checkpoints: int
    latencies: Mapping[int, int]

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.records * 1e6

    def latency_ms(self, share: float) -> float:
        """What so large a share of the records did not exceed; the upper end of the bucket."""
        left = share * sum(self.latencies.values())
        for bucket, times in sorted(self.latencies.items()):
            left -= times
            if left <= 0:
                return (bucket + 1) * BUCKET_NS / 1e6
        raise BenchmarkError("no latency was measured: the run is shorter than its warm-up")


def measure(system: System, work: Work) -> Run:
    """Run the work once, and check its results. Raises BenchmarkError."""
    with tempfile.TemporaryDirectory() as storage:
        given = replace(work, storage=storage)
        title = f"{system.name} at {work.work}"
        lines, usage = watched([*system.command, *given.arguments()], title)
    return _run(system, given, lines, usage)


def watched(command: Sequence[str], title: str) -> tuple[list[Mapping[str, Any]], Usage]:
    """The lines of JSON that a program prints to its end, and what it has used since its first record.

    Raises BenchmarkError if it fails, or does not say when it has ended.
    """
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'connectors'}"},
        ) as process:
            usage = Usage(process.pid)
            try:
                lines = list(_followed(process.stdout, usage.begin))
            except BaseException:
                _kill(process)
                raise
            finally:
                usage.stop()
        if process.returncode or not any("ended_at" in line for line in lines):
            errors.seek(0)
            raise BenchmarkError(f"{title} failed: {errors.read()[-_SHOWN_OUTPUT:]}")
    return lines, usage


def _followed(output: Any, on_start: Callable[[], None]) -> Iterator[Mapping[str, Any]]:
    """The lines of JSON among what a system prints."""
    for text in output:
        if not text.startswith("{"):
            continue
        line = json.loads(text)
        if "started_at" in line:
            on_start()
        yield line


def _run(system: System, work: Work, lines: list[Mapping[str, Any]], usage: Usage) -> Run:
    ended = [line for line in lines if "ended_at" in line]
    tally = Tally()
    for line in ended:
        tally.add(line["count"], line["checksum"])
        tally.add_latencies(dict(line["latencies"]))
    found = Check(tally.count, tally.checksum)
    if found != expected(work):
        raise BenchmarkError(
            f"wrong results of {system.name} at {work.work}: {found}, expected {expected(work)}"
        )
    started_at = min(line["started_at"] for line in lines if "started_at" in line)
    return Run(
        records=work.records,
        seconds=max(line["ended_at"] for line in ended) - started_at,
        cpu_s=usage.cpu_s,
        peak_rss_bytes=usage.peak_rss_bytes,
        checkpoints=max(line["checkpoints"] for line in ended),
        latencies=tally.latencies,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and all its descendants."""
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
