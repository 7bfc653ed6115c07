"""`python -m minirt.laboratory.one_run REQUEST RESULT`: runs a job once, and stores what was measured.

It is a process of its own, so that no run sees what another left behind, and its memory and CPU are
those of one job. Its standard input is a lifeline: once that closes, it ends the run, and stores what
there is.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from minirt.clock import SYSTEM_CLOCK
from minirt.errors import MinirtError
from minirt.laboratory.expected import verify_expected
from minirt.laboratory.kills import Killer, moments
from minirt.laboratory.matrix import MINIRT
from minirt.laboratory.measured import (
    Ending,
    LatencyMeasured,
    Run,
    Series,
    Verification,
)
from minirt.laboratory.notes import Note, Track, read_tracks
from minirt.laboratory.recovery import measure_kills, on_lines
from minirt.laboratory.sampler import Sampler
from minirt.laboratory.trial import RunRequest, Trial, prepare
from minirt.monitoring.buckets import added_up, share_s
from minirt.protocol.job_events import ENDED, JobStatus
from minirt.protocol.plain import from_plain, to_plain
from minirt.runtime.program.execute import start_job
from minirt.runtime.program.job import Job
from minirt.threads import start_thread

START_S = 60.0
"""How long a job may take until its sinks get a record."""
FINISH_S = 60.0
"""How long a job whose output is verified may take to end by itself once its time is up."""
PATIENCE = 3
"""A run without kills goes on for this many times its seconds until a checkpoint has completed."""
BIN_S = 0.5
"""Rates and latencies over time are those of stretches of this length."""
_LOOK_S = 0.02
_NOTHING = Note(0.0, 0, {}, None)


@dataclass(slots=True)
class _Course:
    """How a run went."""

    began: float
    ended_at: float
    ending: Ending
    error: str = ""


def main() -> None:
    request_file, result_file = map(Path, sys.argv[1:])
    request = from_plain(RunRequest, json.loads(request_file.read_text()))
    closed = threading.Event()
    start_thread("lifeline", lambda: _hold_lifeline(closed), lambda error: closed.set())
    if request.setting.system == MINIRT:
        run = run_once(request, closed)
    else:
        from minirt.laboratory.peers import find_peer

        run = find_peer(request.setting.system).run(request, closed)
    result_file.write_text(json.dumps(to_plain(run), allow_nan=False))


def _hold_lifeline(closed: threading.Event) -> None:
    while os.read(0, 1):
        pass
    closed.set()


def run_once(request: RunRequest, closed: threading.Event) -> Run:
    """Until its time is up, the job has ended, or `closed` is set. Raises ConfigurationError."""
    trial = prepare(request)
    sampler = Sampler(os.getpid(), trial.sources, trial.sink_chains)
    started_at = dt.datetime.fromtimestamp(SYSTEM_CLOCK.now(), dt.UTC)
    started = time.monotonic()
    job = start_job(trial.graph, replace(trial.settings, observer=sampler))
    stopped, killer = threading.Event(), Killer(job, request.seed)
    try:
        course = _measure(request, trial, job, sampler, killer, closed, stopped)
    finally:
        stopped.set()
        verification = _finish(job, trial, request.expected)
    return _run(request, trial, sampler, killer, course, verification, started_at, started)


def _measure(
    request: RunRequest,
    trial: Trial,
    job: Job,
    sampler: Sampler,
    killer: Killer,
    closed: threading.Event,
    stopped: threading.Event,
) -> _Course:
    failures: list[BaseException] = []
    start_thread("sampler", lambda: sampler.watch(lambda: job.figures, stopped), failures.append)
    _wait_for_records(trial, job, closed)
    _pause(request.warm_up_s, job, closed)
    began = sampler.begin()
    if request.kills:
        struck = request.kill_at_s
        if request.kill_every_s is not None:
            struck = moments(request.seconds, request.kill_every_s, request.seed)
        start_thread("killer", lambda: killer.run(struck, began, stopped), failures.append)
    _pause(request.seconds, job, closed)
    until = began + request.seconds * PATIENCE
    while (
        not request.kills
        and time.monotonic() < until
        and not closed.is_set()
        and job.status not in ENDED
        and not sampler.has_completed
    ):
        time.sleep(_LOOK_S)
    ended_at = sampler.end(job.figures)
    if failures:
        return _Course(began, ended_at, "failed", f"measuring failed: {failures[0]}")
    if job.status is JobStatus.FAILED:
        return _Course(began, ended_at, "failed", _last_error(job, sampler))
    if job.status in ENDED:
        return _Course(began, ended_at, "finished")
    return _Course(began, ended_at, "interrupted" if closed.is_set() else "time is up")


def _wait_for_records(trial: Trial, job: Job, closed: threading.Event) -> None:
    """Until all subtasks run and a sink has got a record, or that takes too long."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and job.status not in ENDED and not closed.is_set():
        running = job.status is JobStatus.RUNNING
        if running and any(path.stat().st_size for path in trial.place.notes.glob("sink-*")):
            return
        time.sleep(_LOOK_S)


def _pause(seconds: float, job: Job, closed: threading.Event) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and job.status not in ENDED and not closed.is_set():
        time.sleep(_LOOK_S)


def _last_error(job: Job, sampler: Sampler) -> str:
    try:
        job.wait()
    except MinirtError as error:
        return str(error)
    return sampler.errors[-1] if sampler.errors else "the job failed"


def _finish(job: Job, trial: Trial, expected: str | None) -> Verification:
    """End the job. One whose output is known ends by itself, and is told whether it is right."""
    known = trial.workload is not None or expected is not None
    if known and job.status not in ENDED:
        if trial.workload is not None:
            trial.place.finish.touch()
        try:
            job.wait(FINISH_S)
        except TimeoutError:
            words = f"the job did not come to its end within {FINISH_S:g} s"
            return _cancelled(job, Verification("not verified", words))
        except MinirtError as error:
            return Verification("not verified", f"the job failed: {error}")
    if job.status not in ENDED:
        words = "the job was ended by force; what it must put out is not known"
        return _cancelled(job, Verification("not verified", words))
    job.wait_for_end()
    if job.status is not JobStatus.FINISHED:
        return Verification("not verified", "the job did not finish")
    if trial.workload is not None:
        return trial.workload.verify(trial.place)
    if expected is not None:
        return verify_expected(trial.files[0], expected)
    return Verification("not verified", "what the job must put out is not known")


def _cancelled(job: Job, verification: Verification) -> Verification:
    job.cancel(reason="its time in a comparison is up")
    job.wait_for_end()
    return verification


def _run(
    request: RunRequest,
    trial: Trial,
    sampler: Sampler,
    killer: Killer,
    course: _Course,
    verification: Verification,
    started_at: dt.datetime,
    started: float,
) -> Run:
    noted = read_tracks(trial.place.notes, "sink")
    tracks = on_lines(noted, sampler.lines, trial.sink_vertices)
    error = next((track.error for track in tracks if track.error), course.error)
    if request.latency_from is None:
        latencies = sampler.markers
    else:
        latencies = [(note.at, note.latencies) for track in tracks for note in track.notes]
    commits = [commit for sink in trial.sinks for commit in sink.commits]
    further: tuple[Series, ...] = ()
    if trial.workload is not None:
        further = trial.workload.series(trial.place, course.began)
    length_s = course.ended_at - course.began
    shown = tuple(_cut(series, length_s) for series in further)
    rates = _rates(tracks, course.began, length_s)
    times = _over_time("latency", latencies, course.began, length_s)
    waits = _over_time("until visible", commits, course.began, length_s)
    return Run(
        0,
        0,
        request.seed,
        started_at.isoformat(timespec="seconds"),
        "failed" if error else course.ending,
        error,
        round(length_s, 3),
        round(course.began - started, 3),
        len(sampler.errors),
        sampler.source_records,
        _records(tracks, course.began, course.ended_at),
        sum(sink.committed for sink in trial.sinks),
        round(sampler.cpu_s, 3),
        sampler.peak_rss_bytes,
        _latency(counts for at, counts in latencies if course.began <= at <= course.ended_at),
        _latency(counts for _, counts in commits),
        verification,
        sampler.operators(),
        sampler.checkpoints(),
        measure_kills(
            killer.strikes, tracks, sampler.restored, course.began, sampler.first_snapshots
        ),
        (*sampler.series(), rates, *times, *waits, *shown),
        sampler.protocol_bytes,
    )


def _records(tracks: Sequence[Track], since: float, until: float) -> int:
    return sum(_count_until(track, until) - _count_until(track, since) for track in tracks)


def _count_until(track: Track, at: float) -> int:
    return max((note.records for note in track.notes if note.at <= at), default=0)


def _latency(counted: Iterable[Mapping[int, int]]) -> LatencyMeasured | None:
    counts = added_up(counted)
    if not counts:
        return None
    p50, p99, p999 = (round(share_s(counts, share), 6) for share in (0.5, 0.99, 0.999))
    return LatencyMeasured(sum(counts.values()), p50, p99, p999)


def _rates(tracks: Sequence[Track], began: float, length_s: float) -> Series:
    """Records at sinks a second, in bins."""
    bins = max(1, int(length_s / BIN_S))
    counts = [0] * bins
    for track in tracks:
        for before, note in pairwise([_NOTHING, *track.notes]):
            place = int((note.at - began) / BIN_S) if note.at >= began else -1
            if 0 <= place < bins:
                counts[place] += note.records - before.records
    at = [round((place + 0.5) * BIN_S, 3) for place in range(bins)]
    return Series("records at sinks", "per s", tuple(at), tuple(n / BIN_S for n in counts))


def _over_time(
    name: str, seen: Iterable[tuple[float, Mapping[int, int]]], began: float, length_s: float
) -> tuple[Series, ...]:
    """The median and the 99th percentile of what was seen, in bins, where there is anything to be told."""
    bins: dict[int, list[Mapping[int, int]]] = {}
    for at, counts in seen:
        if counts and began <= at < began + length_s:
            bins.setdefault(int((at - began) / BIN_S), []).append(counts)
    found = [(round((place + 0.5) * BIN_S, 3), added_up(bins[place])) for place in sorted(bins)]
    return tuple(
        Series(
            f"{name} p{share * 100:g}",
            "s",
            tuple(at for at, _ in found),
            tuple(round(share_s(counts, share), 6) for _, counts in found),
        )
        for share in (0.5, 0.99)
        if found
    )


def _cut(series: Series, length_s: float) -> Series:
    """Without what came after measuring ended."""
    kept = [pair for pair in zip(series.at_s, series.values, strict=True) if pair[0] <= length_s]
    return replace(series, at_s=tuple(a for a, _ in kept), values=tuple(v for _, v in kept))


if __name__ == "__main__":
    main()
