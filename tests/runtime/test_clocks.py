"""The wall clock is set back and forward while jobs run, and nothing that lasts notices."""

from __future__ import annotations

import time

import pytest

import minirt as rt
from minirt.protocol.barriers import Barrier
from minirt.protocol.restore_options import RestoreOptions
from minirt.run_settings import RunSettings
from minirt.runtime.channels.frames import Frame, Kind, barrier_frame, barrier_of
from minirt.runtime.network.transit import Transit, departing
from minirt.runtime.program.execute import start_job
from minirt.testing.clock import ShiftedClock
from tests.runtime.processes import wait_until

HOUR_S = 3600.0


def settings(folder) -> RunSettings:
    return RunSettings(
        checkpointing=rt.Checkpointing(str(folder), interval="100ms", timeout="20s"),
        restart=rt.Restart.none(),
        restore=RestoreOptions(),
        options=rt.Options(heartbeat_timeout="20s"),
    )


class Slow(rt.Process):
    """Takes so long that a job is there for as long as a test needs it."""

    def process(self, record, ctx):
        time.sleep(0.004)
        yield record


def endless(sink: rt.Sink) -> rt.Environment:
    env = rt.Environment("clocks", parallelism=1)
    slow = env.source(rt.SequenceSource.endless(), uid="numbers").process(Slow(), uid="slow")
    slow.key_by(lambda n: n % 3).reduce(max, uid="newest").rebalance().sink(sink, uid="out")
    return env


@pytest.mark.processes
def test_a_job_does_not_notice_that_the_clock_is_set(tmp_path):
    """Checkpoints go on, output comes, no worker counts as silent, and durations are what passed."""
    began, clock, sink = time.monotonic(), ShiftedClock(str(tmp_path / "clock")), rt.CollectSink()
    job = start_job(endless(sink).graph(), settings(tmp_path / "checkpoints"), clock)
    for by_s in (0.0, -HOUR_S, HOUR_S, 50.0, -2 * HOUR_S):
        clock.shift(by_s)
        wanted = job.figures.checkpoints.completed + 3
        rows = len(sink.rows)
        wait_until(lambda wanted=wanted: job.figures.checkpoints.completed >= wanted, "checkpoints")
        wait_until(lambda rows=rows: len(sink.rows) > rows, "output")
    assert job.status.value == "running"
    job.cancel()
    result = job.wait(60)
    lasted_s = time.monotonic() - began
    assert result.restarts == 0
    completed = [entry for entry in result.checkpoints if entry["status"] == "completed"]
    for entry in completed:
        assert 0 <= entry["duration_s"] <= lasted_s
        for part in entry["subtasks"]:
            for name in (
                "start_delay_s",
                "alignment_s",
                "sync_s",
                "async_s",
                "acknowledged_after_s",
            ):
                assert 0 <= part[name] <= lasted_s, name
    dates = [entry["triggered_at"] for entry in completed]
    assert max(dates) - min(dates) > 2 * HOUR_S


# Ages of barriers.


def sent(barrier: Barrier, now: float) -> Frame:
    return departing(barrier_frame(barrier), now)


def test_a_barrier_keeps_its_age_whatever_the_clocks_of_others_show():
    barrier = Barrier(1, "aligned", created_at=100.0)
    one, other = Transit(), Transit()
    arrived = one.frame(sent(barrier, 103.0), now=50_000.0)
    assert 50_000.0 - barrier_of(arrived).created_at == pytest.approx(3.0)
    further = other.frame(departing(arrived, 50_001.5), now=7.0)
    assert 7.0 - barrier_of(further).created_at == pytest.approx(4.5)


def test_the_time_on_the_way_counts_once_a_faster_one_was_seen():
    transit = Transit()
    transit.note(sent_at=10.0, now=1000.001)
    late = transit.frame(sent(Barrier(2, "aligned", created_at=20.0), 20.5), now=1014.5)
    assert 1014.5 - barrier_of(late).created_at == pytest.approx(4.5, abs=0.01)


def test_clocks_that_drift_apart_make_no_barrier_old():
    transit = Transit()
    ages = []
    for n in range(100_000):
        at = float(n)
        now = 5000 + at * 1.0001
        ages.append(now - transit.barrier(Barrier(n, "aligned", at), at, now).created_at)
    assert max(ages) < 0.01


def test_other_frames_travel_as_they_are():
    frame = Frame(Kind.ROWS, b"rows", 1)
    assert departing(frame, 1.0) is frame
    assert Transit().frame(frame, 1.0) is frame


def test_barriers_that_travel_together_are_alike_and_count_as_one_arrival():
    transit, barrier = Transit(), Barrier(3, "aligned", created_at=20.0)
    transit.note(sent_at=10.0, now=1000.0)
    together = [transit.frame(sent(barrier, 20.5), now=1014.5) for _ in range(100)]
    assert all(frame is together[0] for frame in together)
    later = transit.frame(sent(barrier, 20.5), now=1015.5)
    assert 1014.5 - barrier_of(together[0]).created_at == pytest.approx(4.5)
    assert 1015.5 - barrier_of(later).created_at == pytest.approx(5.5)
