"""What `minirt bench` tells of recovery: SIGKILL to random workers, until a sink gets a record again."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from minirt.api.environment import Environment
from minirt.config import Checkpointing
from minirt.io.base import Sink
from minirt.io.collection import SequenceSource
from minirt.io.simple_sinks import DiscardSink
from minirt.laboratory.kills import Killer
from minirt.laboratory.notes import Track, read_tracks
from minirt.laboratory.sinks import MeasuredSink
from minirt.protocol.job_events import ENDED
from minirt.protocol.restarts import Restart
from minirt.runtime.program.job import Job
from minirt.watermarks import Watermarks

RECORDS_PER_S = 20_000
KEYS = 1000
PARALLELISM = 2

EVERY_S = 0.8
"""Between a record after a kill and the next kill: several checkpoints complete meanwhile."""

_WAIT_S_MAX = 60.0
_LOOK_S = 0.01


def paced_job(sink: Sink) -> Environment:
    """Sums per key, at a pace that leaves most of the machine idle: what is left is the recovery itself."""
    env = Environment("recovery", parallelism=PARALLELISM)
    numbers = env.source(
        SequenceSource.endless(splits=PARALLELISM),
        uid="numbers",
        watermarks=Watermarks.monotonous(timestamp=_itself),
        speed=RECORDS_PER_S / PARALLELISM / 1000,
    )
    numbers.key_by(_key).reduce(_add, uid="sum").sink(sink, uid="out")
    return env


def recoveries_s(seconds: float) -> list[float]:
    """How long each kill took until a sink got a record again; as many kills as fit, one at least."""
    with tempfile.TemporaryDirectory(prefix="minirt-bench-") as folder:
        notes = Path(folder, "notes")
        notes.mkdir()
        job = paced_job(MeasuredSink(DiscardSink(), str(notes), "sink-0", None)).start(
            checkpointing=Checkpointing(f"{folder}/checkpoints", interval="200ms"),
            restart=Restart.fixed_delay(attempts=None, delay="0s"),
        )
        try:
            return _kill_and_wait(job, notes, max(1, int(seconds / EVERY_S)))
        finally:
            job.cancel()
            job.wait_for_end()


def _kill_and_wait(job: Job, notes: Path, kills: int) -> list[float]:
    killer, found = Killer(job, seed=0), list[float]()
    _first_record(job, notes, 0)
    for _ in range(kills):
        struck = len(killer.strikes)
        killer.run((EVERY_S,), time.monotonic(), threading.Event())
        if len(killer.strikes) == struck:  # The job has ended: raise as it does.
            job.wait()
            break
        strike = killer.strikes[-1]
        found.append(_first_record(job, notes, strike.generation) - strike.at)
    return found


def _first_record(job: Job, notes: Path, generation: int) -> float:
    """When a sink got the first record of a later generation. Raises as the job does, or TimeoutError."""
    until = time.monotonic() + _WAIT_S_MAX
    while time.monotonic() < until:
        at = first_record_at(read_tracks(notes, "sink"), generation)
        if at is not None:
            return at
        if job.status in ENDED:
            job.wait()
        time.sleep(_LOOK_S)
    raise TimeoutError(f"no record came to a sink within {_WAIT_S_MAX:g} s")


def first_record_at(tracks: Sequence[Track], generation: int) -> float | None:
    """When the first record of any later generation came; None if there is none yet."""
    later = [track for track in tracks if track.generation > generation]
    return min((note.at for track in later for note in track.notes if note.records), default=None)


def _itself(number: int) -> int:
    return number


def _key(number: int) -> int:
    return number % KEYS


def _add(total: int, number: int) -> int:
    return total + number
