"""One run of Flink, as its program and its REST interface tell of it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from minirt.clock import SYSTEM_CLOCK
from minirt.laboratory.measured import (
    CheckpointMeasured,
    Ending,
    LatencyMeasured,
    OperatorMeasured,
    PartMeasured,
    Run,
    Series,
    Verification,
)
from minirt.laboratory.one_run import PATIENCE, START_S
from minirt.laboratory.trial import RunRequest
from minirt.monitoring.buckets import added_up, share_s
from minirt.threads import start_thread

EVERY_S = 0.5
CHECKPOINTS_MAX = 100
"""Of how many checkpoints the parts are asked for."""
ANSWER_S_MAX = 10.0
_ERROR_CHARS = 1000
_TIMES = {"busy": "Busy", "idle": "Idle", "pressed": "BackPressured"}


@dataclass(frozen=True, slots=True)
class Look:
    """What the program has counted by `at`, and the latencies since the look before, by bucket."""

    at: float
    read: int
    written: int
    latencies: Mapping[int, int]
    lag: float | None = None
    """How many records were due and not read; None where records have no pace."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    cpu_s: float
    rss_bytes: int
    times_ms: Mapping[tuple[str, int], Mapping[str, float]]
    """Of each subtask, by the name of its vertex: what it has been busy, idle and backpressured for."""


@dataclass(slots=True)
class _Told:
    """What the program has printed so far."""

    job: str | None = None
    looks: list[Look] = field(default_factory=list)

    def follow(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            if not line.startswith(b"{"):
                continue
            told = json.loads(line)
            if "job" in told:
                self.job = told["job"]
            elif "latencies" in told:
                buckets = {int(bucket): int(count) for bucket, count in told["latencies"]}
                counted = (told["read"], told["written"], buckets, told["lag"])
                self.looks.append(Look(told["at"], *counted))


class _Rest:
    """Asks the REST interface of the job."""

    def __init__(self, port: int, job: str) -> None:
        self._address = f"http://localhost:{port}/jobs/{job}"
        self._vertices: list[Mapping[str, Any]] = self("")["vertices"]

    def __call__(self, path: str) -> Any:
        with urllib.request.urlopen(self._address + path, timeout=ANSWER_S_MAX) as answer:
            return json.load(answer)

    def times_ms(self) -> dict[tuple[str, int], dict[str, float]]:
        found = {}
        for vertex in self._vertices:
            names = [
                f"{subtask}.accumulate{time_}TimeMs"
                for subtask in range(vertex["parallelism"])
                for time_ in _TIMES.values()
            ]
            told = self(f"/vertices/{vertex['id']}/metrics?get={','.join(names)}")
            values = {one["id"]: float(one["value"]) for one in told}
            for subtask in range(vertex["parallelism"]):
                found[vertex["name"], subtask] = {
                    own: values.get(f"{subtask}.accumulate{its}TimeMs", 0.0)
                    for own, its in _TIMES.items()
                }
        return found

    def checkpoints(
        self, monotonic_of: float, began: float, until: float
    ) -> tuple[CheckpointMeasured, ...]:
        """Those that were triggered until then. `monotonic_of` is what to add to the wall clock."""
        found: list[CheckpointMeasured] = []
        for entry in reversed(self("/checkpoints")["history"]):
            at = entry["trigger_timestamp"] / 1000 + monotonic_of
            if entry["status"] != "IN_PROGRESS" and at <= until:
                with_parts = at >= began and len(found) < CHECKPOINTS_MAX
                parts = tuple(self._parts(entry["id"])) if with_parts else ()
                found.append(checkpoint(entry, at - began, parts))
        return tuple(found)

    def _parts(self, id: int) -> Iterator[PartMeasured]:
        for vertex in self._vertices:
            path = f"/checkpoints/details/{id}/subtasks/{vertex['id']}"
            try:
                told = self(path)["subtasks"]
            except urllib.error.HTTPError:  # It is forgotten.
                continue
            for one in told:
                if "checkpoint" in one:
                    yield part(vertex, one)


def part(vertex: Mapping[str, Any], told: Mapping[str, Any]) -> PartMeasured:
    return PartMeasured(
        f"{vertex['name']} ({told['index'] + 1}/{vertex['parallelism']})",
        told["index"],
        max(0, told["start_delay"]) / 1000,
        told["alignment"]["duration"] / 1000,
        told["checkpoint"]["sync"] / 1000,
        told["checkpoint"]["async"] / 1000,
        told["state_size"] - told["alignment"]["persisted"],
        told["alignment"]["persisted"],
    )


def checkpoint(
    entry: Mapping[str, Any], at_s: float, parts: tuple[PartMeasured, ...]
) -> CheckpointMeasured:
    """What Flink calls the size of the state has what is in flight in it."""
    completed = entry["status"] == "COMPLETED"
    in_flight = entry["persisted_data"]
    return CheckpointMeasured(
        entry["id"],
        round(at_s, 4),
        entry["end_to_end_duration"] / 1000,
        completed,
        "savepoint" if entry["is_savepoint"] else "checkpoint",
        "" if completed else str(entry.get("failure_message", "failed")),
        entry["checkpointed_size"] if completed else None,
        in_flight,
        max(0, entry["state_size"] - in_flight),
        parts,
    )


def measure(
    process: subprocess.Popen[bytes],
    port: int,
    request: RunRequest,
    closed: threading.Event,
    errors: Path,
) -> Run:
    """Until its time is up, or `closed` is set. The process goes on."""
    told, started = _Told(), time.monotonic()
    started_at = dt.datetime.fromtimestamp(SYSTEM_CLOCK.now(), dt.UTC)
    assert process.stdout is not None
    output = iter(process.stdout)
    # Without what it reads, the run cannot go on.
    start_thread("flink", lambda: told.follow(output), lambda error: process.kill())

    def pause(seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while (
            time.monotonic() < end
            and process.poll() is None
            and not closed.is_set()
            and not until()
        ):
            time.sleep(0.05)

    pause(START_S, lambda: bool(told.looks) and told.looks[-1].written > 0)
    pause(request.warm_up_s)
    if process.poll() is not None or told.job is None or not told.looks:
        if closed.is_set():
            return replace(_failed(request, errors, started_at), ended="interrupted", error="")
        return _failed(request, errors, started_at)
    rest, samples = _Rest(port, told.job), list[Sample]()
    usage = psutil.Process(process.pid)
    monotonic_of = time.monotonic() - SYSTEM_CLOCK.now()
    began = time.monotonic()

    def over() -> bool:
        passed = time.monotonic() - began
        if passed < request.seconds:
            return False
        counted = rest("/checkpoints")["history"]
        newest = [
            e["trigger_timestamp"] / 1000 + monotonic_of
            for e in counted
            if e["status"] == "COMPLETED"
        ]
        return passed >= PATIENCE * request.seconds or any(at >= began for at in newest)

    while process.poll() is None and not closed.is_set() and not over():
        samples.append(_sample(usage, rest))
        pause(min(EVERY_S, max(0.05, began + request.seconds - time.monotonic())))
    if process.poll() is not None:
        return _failed(request, errors, started_at)
    samples.append(_sample(usage, rest))
    ended_at = samples[-1].at
    looks = [one for one in told.looks if began <= one.at <= ended_at]
    ending: Ending = "interrupted" if closed.is_set() else "time is up"
    checkpoints = rest.checkpoints(monotonic_of, began, ended_at)
    return _run(
        request, ending, started_at, (started, began, ended_at), looks, samples, checkpoints
    )


def _sample(usage: psutil.Process, rest: _Rest) -> Sample:
    times_ms = rest.times_ms()
    cpu_s = sum(usage.cpu_times()[:2])
    return Sample(time.monotonic(), cpu_s, usage.memory_info().rss, times_ms)


def _run(
    request: RunRequest,
    ending: Ending,
    started_at: dt.datetime,
    times: tuple[float, float, float],
    looks: Sequence[Look],
    samples: Sequence[Sample],
    checkpoints: tuple[CheckpointMeasured, ...],
) -> Run:
    started, began, ended_at = times
    length_s = ended_at - began
    counted = added_up(look.latencies for look in looks[1:])  # The first one has what came before.
    read, written = (round(_per_s(looks, name) * length_s) for name in ("read", "written"))
    return Run(
        *(0, 0, request.seed, started_at.isoformat(timespec="seconds"), ending, ""),
        *(round(length_s, 3), round(began - started, 3), 0, read, written, 0),
        round(samples[-1].cpu_s - samples[0].cpu_s, 3),
        max(one.rss_bytes for one in samples),
        LatencyMeasured(sum(counted.values()), *(share_s(counted, s) for s in (0.5, 0.99, 0.999)))
        if counted
        else None,
        None,
        Verification("not verified", "the output of a peer is not verified"),
        operators(samples[0], samples[-1]),
        checkpoints,
        (),
        tuple(_series(began, looks, samples)),
    )


def _per_s(looks: Sequence[Look], name: str) -> float:
    """The program looks less often than it is measured: its first and last look tell the rate."""
    if len(looks) < 2 or looks[-1].at <= looks[0].at:
        return 0.0
    change = getattr(looks[-1], name) - getattr(looks[0], name)
    return float(change / (looks[-1].at - looks[0].at))


def operators(first: Sample, last: Sample) -> tuple[OperatorMeasured, ...]:
    """Where the time of each vertex went between two samples."""
    shares: dict[str, list[dict[str, float]]] = {}
    for (name, subtask), after in last.times_ms.items():
        before = first.times_ms.get((name, subtask), {})
        spent = {key: max(0.0, ms - before.get(key, 0.0)) for key, ms in after.items()}
        whole = sum(spent.values()) or 1.0
        shares.setdefault(name, []).append({key: ms / whole for key, ms in spent.items()})
    found = []
    for name, each in shares.items():
        mean = {key: round(sum(one[key] for one in each) / len(each), 4) for key in _TIMES}
        busiest = round(max(one["busy"] for one in each), 4)
        times = (mean["busy"], mean["idle"], mean["pressed"], 0.0)
        found.append(OperatorMeasured(name, name, len(each), *times, busiest))
    return tuple(found)


def _series(began: float, looks: Sequence[Look], samples: Sequence[Sample]) -> Iterator[Series]:
    def at(ones: Sequence[Look] | Sequence[Sample]) -> tuple[float, ...]:
        return tuple(round(one.at - began, 3) for one in ones)

    sunk = [(b.written - a.written) / (b.at - a.at) for a, b in pairwise(looks)]
    read = [(b.read - a.read) / (b.at - a.at) for a, b in pairwise(looks)]
    yield Series("records at sinks", "per s", at(looks[1:]), tuple(sunk))
    yield Series("records of sources", "per s", at(looks[1:]), tuple(read))
    known = [look for look in looks[1:] if look.latencies]
    for share in (0.5, 0.99):
        values = tuple(round(share_s(look.latencies, share), 6) for look in known)
        yield Series(f"latency p{share * 100:g}", "s", at(known), values)
    paced = [look for look in looks if look.lag is not None]
    if paced:
        yield Series(
            "source lag", "records", at(paced), tuple(float(one.lag or 0) for one in paced)
        )
    cpu = [(b.cpu_s - a.cpu_s) / (b.at - a.at) for a, b in pairwise(samples)]
    yield Series("CPU", "cores", at(samples[1:]), tuple(round(one, 3) for one in cpu))
    yield Series("memory", "bytes", at(samples), tuple(float(one.rss_bytes) for one in samples))
    pressed = [
        max((one.soft_backpressure for one in operators(a, b)), default=0.0)
        for a, b in pairwise(samples)
    ]
    yield Series("backpressure", "share", at(samples[1:]), tuple(pressed))


def _failed(request: RunRequest, errors: Path, started_at: dt.datetime) -> Run:
    text = errors.read_text(errors="backslashreplace").strip()[-_ERROR_CHARS:]
    return Run(
        *(0, 0, request.seed, started_at.isoformat(timespec="seconds"), "failed"),
        f"flink did not run\n{text}",
        *(0.0, 0.0),
        *(0, 0, 0, 0),
        *(0.0, 0),
        None,
        None,
        Verification("not verified", "the run failed"),
    )
