"""Latency markers in simulated jobs: they are drawn, and change nothing of a restore or a rescale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from minirt.modes import MODES
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.protocol.barriers import CheckpointMode
from minirt.runtime.channels import numbered
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.channels.latency_marker import LatencyMarker
from minirt.runtime.channels.output import Outputs
from minirt.runtime.channels.queue import FrameQueue, Queued
from minirt.runtime.channels.spill import SpilledFrame
from minirt.runtime.input.latency_timer import LatencyTimer
from minirt.runtime.subtask.subtask import Subtask
from minirt.testing.options import drawn_latency_interval
from tests.campaigns import sampled, seeds
from tests.simulation import test_service_order as service_order
from tests.simulation.counting import MARKED, CountingJob, run_counting
from tests.simulation.soak import run_seed

Patch = pytest.MonkeyPatch

SEEDS = 100
RESCALED = 1
"""From this seed on the first few are rescaled and restarted, and send markers enough, in every mode."""
MODES_AND_SWITCHES = {**MODES, "timeout": AlignedWithTimeout(timeout="5ms")}


class Passed:
    """Counts the markers that sources have sent, and those that went on."""

    def __init__(self, monkeypatch: Patch) -> None:
        self.sent = self.went_on = 0
        emit, pass_on = LatencyTimer.emit, Outputs.latency

        def counted_emit(timer: LatencyTimer, now: float) -> LatencyMarker | None:
            marker = emit(timer, now)
            self.sent += marker is not None
            return marker

        def counted_pass_on(outputs: Outputs, marker: LatencyMarker) -> None:
            self.went_on += 1
            pass_on(outputs, marker)

        monkeypatch.setattr(LatencyTimer, "emit", counted_emit)
        monkeypatch.setattr(Outputs, "latency", counted_pass_on)


def test_half_of_the_seeds_draw_markers_and_all_keep_what_they_drew_before() -> None:
    drawn = Counter(drawn_latency_interval(Random(f"markers {seed}"), 0.01) for seed in range(400))
    assert drawn.keys() == {None, 0.002, 0.03}
    assert 150 < drawn[None] < 250


def test_random_jobs_of_the_conformance_kit_send_markers(monkeypatch: Patch) -> None:
    passed, marked = Passed(monkeypatch), 0
    for seed in range(8):
        before = passed.sent
        assert run_seed(seed).wrong == [], seed
        marked += passed.sent > before
    assert 1 < marked < 8
    assert passed.went_on > passed.sent, "some have come to a subtask behind a source"


@pytest.mark.parametrize("name", sorted(MODES_AND_SWITCHES))
def test_restores_and_rescales_go_on_with_markers_and_lose_nothing(
    name: str, monkeypatch: Patch
) -> None:
    mode = MODES_AND_SWITCHES[name]
    passed, rescales, restarts = Passed(monkeypatch), 0, 0
    for seed in range(RESCALED, RESCALED + sampled(6)):
        job = CountingJob([1, 3, 2])
        result = job.run(seed, mode=mode, options=MARKED)
        assert [*result.problems, *job.wrong(exactly_once=mode.exactly_once)] == [], seed
        rescales, restarts = rescales + result.rescales, restarts + result.restarts
    assert rescales > 0
    assert restarts > rescales
    assert passed.sent > 10


# Planted.


def noticed(mode: str | CheckpointMode, first: int = 0) -> str:
    """What the first seed says that fails."""
    for seed in seeds(SEEDS, first):
        wrong = run_counting(seed, mode=mode, options=MARKED, steps_max=20_000)
        if wrong:
            return " ".join(wrong)
    return "nothing"


def test_a_marker_that_an_input_captures(monkeypatch: Patch) -> None:
    right = FrameQueue.data_ahead

    def with_markers(self: FrameQueue, checkpoint_id: int | None) -> Sequence[Queued]:
        ahead = {id(frame) for frame in right(self, checkpoint_id)}
        return [frame for frame in self if id(frame) in ahead or frame.kind == Kind.LATENCY]

    monkeypatch.setattr(FrameQueue, "data_ahead", with_markers)
    assert "form was expected" in noticed("unaligned")


def test_a_marker_that_opens_the_channels_that_wait_at_a_barrier(monkeypatch: Patch) -> None:
    right = Subtask._pass_on

    def pass_on(subtask: Subtask, marker: LatencyMarker) -> None:
        right(subtask, marker)
        if not subtask.input.is_source:
            subtask.input.unblock_all()

    monkeypatch.setattr(Subtask, "_pass_on", pass_on)
    assert "no consistent cut" in noticed("aligned", first=7)


def test_a_marker_that_takes_the_place_of_what_is_gathered_before_it(monkeypatch: Patch) -> None:
    right = Outputs.latency

    def latency(outputs: Outputs, marker: LatencyMarker) -> None:
        for link in outputs.links:
            for buffer in link._buffers:
                buffer.records.clear()
                buffer.timestamps.clear()
        right(outputs, marker)

    monkeypatch.setattr(Outputs, "latency", latency)
    found = noticed("aligned")
    assert "no consistent cut" in found or "lost" in found


def test_a_marker_that_counts_as_an_element_where_a_worker_comes_back(monkeypatch: Patch) -> None:
    def elements(frame: Frame | SpilledFrame) -> int:
        return frame.records if frame.is_data else int(frame.kind in (Kind.END, Kind.LATENCY))

    monkeypatch.setattr(numbered, "_elements", elements)
    found = (service_order.run(seed, latency_interval=0.002)[1] for seed in seeds(SEEDS, 6))
    assert any(found)
