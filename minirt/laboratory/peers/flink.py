"""Apache Flink, in one process, with the graphs of `benchmarks/peers/flink/CompareJobs.java`."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minirt.laboratory.measured import Run
from minirt.laboratory.peer import Peer
from minirt.laboratory.peers.flink_run import measure
from minirt.laboratory.trial import CHECKPOINTS_A_RUN, INTERVAL_S, RunRequest
from minirt.laboratory.workload import Workload, with_parameters
from minirt.laboratory.workloads import find_workload
from minirt.laboratory.workloads.parts import Course
from minirt.laboratory.workloads.throttled import HOT_SHARE
from minirt.settings.catalogue import ABSENT
from minirt.units import seconds as read_seconds

HEAP = "-Xmx2g"
_INTERVAL, _DEBLOAT = "checkpointing.interval", "options.debloat"

_ARGUMENTS: Mapping[str, Callable[[Any], dict[str, object]]] = {
    "aws-peak": lambda one: {"keys": one.keys, "quota": one.quota, "pace": _text(one.course)},
    "checkpointing-time": lambda one: {"keys": 1000},
    "joined": lambda one: {"keys": 1, "waiting": one.waiting},
    "skewed-join": lambda one: {
        "keys": one.keys,
        "hot_per_mille": int(1000 * one.hot_share),
        "pace": _text(one.course),
        "waiting": one.waiting,
    },
    "throttled": lambda one: {
        "keys": one.keys,
        "hot_per_mille": int(1000 * HOT_SHARE) if one.shape == "skewed" else 0,
        "shape": one.shape,
        "period_s": one.period_s,
    },
    "windowed": lambda one: {"keys": one.keys, "window_records": one.window_records},
}
"""What the Java program is told of each workload, beside `record_ms` and `payload_chars`."""


class Flink(Peer):
    """`make bench-peers` in a checkout of minirt installs it into `.bench`; MINIRT_PEERS names another
    folder."""

    name = "flink"
    modes = frozenset(("aligned", "unaligned"))
    workloads = frozenset(_ARGUMENTS)
    options = frozenset((_INTERVAL, _DEBLOAT))

    def missing(self) -> str | None:
        if not self._needed.exists():
            install = "run `make bench-peers` in a checkout of minirt"
            return f"--peers flink: {self._needed} is missing; {install}"
        return None

    def version(self) -> str:
        names = " ".join(path.name for path in self._libraries.glob("flink-dist-*.jar"))
        found = re.search(r"flink-dist-([\d.]+)\.jar", names)
        return found[1] if found else "of an unknown version"

    def run(self, request: RunRequest, closed: threading.Event) -> Run:
        port = _free_port()
        errors = Path(request.folder, "flink.log")
        with (
            errors.open("wb") as log,
            subprocess.Popen(
                self._command(request, port),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            ) as process,
        ):
            try:
                return measure(process, port, request, closed, errors)
            finally:
                process.kill()

    def _command(self, request: RunRequest, port: int) -> list[str]:
        assert request.workload is not None
        kind = find_workload(request.workload)
        workload = with_parameters(kind, request.setting.of("parameter"))
        given = {
            "work": request.workload,
            "parallelism": request.setting.parallelism or kind.defaults.parallelism,
            "mode": request.setting.mode,
            "interval_ms": round(1000 * _interval_s(request, kind)),
            "debloat_ms": round(1000 * _debloat_s(request)),
            "record_ms": getattr(workload, "record_ms", 0.0),
            "payload_chars": getattr(workload, "payload_chars", 0),
            "hot_per_mille": 0,
            **_ARGUMENTS[request.workload](workload),
            "rest_port": port,
            "storage": Path(request.folder, "checkpoints"),
        }
        path = f"{self._classes}:{self._libraries}/*"
        arguments = [f"{name}={value}" for name, value in given.items()]
        return ["java", HEAP, "-cp", path, "Compare", *arguments]

    @property
    def _folder(self) -> Path:
        given = os.environ.get("MINIRT_PEERS")
        return Path(given) if given else Path(__file__).parents[3] / ".bench"

    @property
    def _classes(self) -> Path:
        return self._folder / "flink-classes"

    @property
    def _needed(self) -> Path:
        return self._classes / "Compare.class"

    @property
    def _libraries(self) -> Path:
        [*_, found] = [
            self._folder / "flink" / "lib",
            *sorted(self._folder.glob("flink/lib/python*/site-packages/pyflink/lib")),
        ]
        return found


def _text(course: Course) -> str:
    """A pace as the Java program reads it."""
    return ",".join(f"{seconds!r}:{rate!r}" for seconds, rate in course)


def _interval_s(request: RunRequest, kind: type[Workload]) -> float:
    text = {**kind.defaults.options, **request.setting.of("option")}.get(_INTERVAL)
    if text is None:
        return min(INTERVAL_S, request.seconds / CHECKPOINTS_A_RUN)
    return read_seconds(text, _INTERVAL)


def _debloat_s(request: RunRequest) -> float:
    """0 for none."""
    text = request.setting.of("option").get(_DEBLOAT, ABSENT)
    return 0.0 if text in (ABSENT, "off") else read_seconds(text, _DEBLOAT)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port: int = listener.getsockname()[1]
    return port
