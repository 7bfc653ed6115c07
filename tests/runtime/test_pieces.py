"""How many records a function gets at a time, going by how long it took before."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import median

import pytest

from minirt.runtime.subtask import pacer
from minirt.runtime.subtask.pacer import ColumnPieces, RowPieces, Stopwatch

SLICE_S = 0.002


def sizes(
    pieces: ColumnPieces | RowPieces, seconds_of: Callable[[int], float], count: int
) -> list[int]:
    """The sizes of so many pieces, one after the other."""
    found = []
    for _ in range(count):
        found.append(pieces.size)
        pieces.took(pieces.size, seconds_of(pieces.size))
    return found


def costs(fixed_s: float, record_s: float) -> Callable[[int], float]:
    return lambda records: fixed_s + record_s * records


@pytest.mark.parametrize("pieces", [ColumnPieces(SLICE_S), RowPieces(SLICE_S)])
def test_piece_takes_about_a_slice(pieces: ColumnPieces | RowPieces) -> None:
    last = sizes(pieces, costs(0, 1e-6), 100)[-1]
    assert SLICE_S / 2 < last * 1e-6 <= SLICE_S


@pytest.mark.parametrize("pieces", [ColumnPieces(SLICE_S), RowPieces(SLICE_S)])
def test_function_that_is_slow_for_each_record_gets_one_at_a_time(
    pieces: ColumnPieces | RowPieces,
) -> None:
    found = sizes(pieces, costs(0, 0.1), 1000)
    assert set(found) <= {1, 2}
    assert found.count(2) <= 1 + 1000 // 64


@pytest.mark.parametrize("fixed_s", [0.0012, 0.003, 0.05, 1.0])
def test_columns_in_slow_calls_are_many(fixed_s: float) -> None:
    record_s = fixed_s / 5000
    found = sizes(ColumnPieces(SLICE_S), costs(fixed_s, record_s), 300)
    settled = found[100:]
    assert min(settled) * record_s > fixed_s / 3
    assert max(settled) * record_s < 4 * fixed_s


def test_rows_in_slow_calls_are_few_for_their_function_is_called_for_each() -> None:
    assert sizes(RowPieces(SLICE_S), costs(0.003, 1e-6), 50)[-1] == 1


def test_one_long_piece_changes_little() -> None:
    pieces = ColumnPieces(SLICE_S)
    before = sizes(pieces, costs(0, 1e-6), 100)[-1]
    pieces.took(pieces.size, 0.5)
    assert sizes(pieces, costs(0, 1e-6), 5) == [before] * 5


def test_function_that_turns_slow_or_fast_is_noticed() -> None:
    pieces = ColumnPieces(SLICE_S)
    sizes(pieces, costs(0, 1e-6), 100)
    assert sizes(pieces, costs(0, 1e-3), 8)[-3:] == [2, 2, 2]
    assert sizes(pieces, costs(0, 1e-6), 100)[-1] >= 1024
    assert sizes(pieces, costs(0.01, 1e-6), 200)[-1] >= 4096
    assert sizes(pieces, costs(0, 1e-6), 200)[-1] <= 2048


def test_no_piece_is_larger_than_a_limit() -> None:
    assert max(sizes(ColumnPieces(SLICE_S), costs(0, 1e-9), 100)) == 1 << 16
    assert max(sizes(ColumnPieces(SLICE_S), costs(1, 1e-9), 300)) == 1 << 16


def test_batches_that_end_early_count_as_what_they_were() -> None:
    pieces = ColumnPieces(SLICE_S)
    for _ in range(100):
        pieces.took(min(pieces.size, 700), 0.0001)
    assert pieces.size <= 1024


def test_what_only_adds_to_some_measurements_does_not_make_pieces_smaller() -> None:
    pieces, random = ColumnPieces(SLICE_S), Random(1)
    cost = costs(0.0005, 1e-6)
    found = sizes(pieces, lambda records: cost(records) * random.uniform(1, 1.9), 500)
    assert median(found[100:]) >= 512


@pytest.mark.parametrize("fixed_s", [0.0001, 0.0005, 0.005])
def test_a_machine_with_much_other_work_does_not_make_pieces_small(fixed_s: float) -> None:
    pieces, random = ColumnPieces(SLICE_S), Random(1)
    cost = costs(fixed_s, 1e-6)

    def seconds(records: int) -> float:
        return cost(records) + (random.expovariate(1 / 0.01) if random.random() < 0.7 else 0)

    found = sizes(pieces, seconds, 2000)
    assert median(found) >= 512
    assert sum(size < 128 for size in found[100:]) < 100


def test_batches_that_end_early_make_no_piece_smaller() -> None:
    pieces = ColumnPieces(SLICE_S)
    before = sizes(pieces, costs(0, 1e-6), 50)[-1]
    for _ in range(500):
        pieces.took(3, 0.0001)
    assert pieces.size >= before


def test_batches_that_end_early_and_take_long_do() -> None:
    pieces = ColumnPieces(SLICE_S)
    sizes(pieces, costs(0, 1e-9), 50)
    for _ in range(20):
        pieces.took(min(pieces.size, 5000), min(pieces.size, 5000) * 1e-5)
    assert 64 <= pieces.size <= 256


def test_time_of_other_threads_is_not_measured_and_sleep_is() -> None:
    stopwatch = Stopwatch()
    time.sleep(0.02)
    assert stopwatch.lap_s() >= 0.02
    began_at = time.thread_time()
    while time.thread_time() < began_at + 0.02:
        pass
    worked_s = time.thread_time() - began_at
    assert stopwatch.lap_s() == pytest.approx(worked_s, rel=0.2)


class Readings:
    """What a stopwatch reads; `asked` counts how often it has asked whether the thread waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.cpu_s = 0.0
        self.waits = self.asked = 0
        monkeypatch.setattr(pacer, "perf_counter", lambda: self.now)
        monkeypatch.setattr(pacer, "thread_time", lambda: self.cpu_s)
        monkeypatch.setattr(pacer, "_times_waited", self._times_waited)

    def pass_by(self, seconds: float, cpu_s: float, waits: int = 0) -> None:
        self.now += seconds
        self.cpu_s += cpu_s
        self.waits += waits

    def _times_waited(self) -> int:
        self.asked += 1
        return self.waits


def test_only_a_lap_without_the_processor_asks_why(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Readings(monkeypatch)
    stopwatch = Stopwatch()
    for _ in range(3):
        readings.pass_by(0.0105, 0.01)
        assert stopwatch.lap_s() == pytest.approx(0.01)
    assert readings.asked == 1
    for waits, took_s in ((0, 0.01), (1, 0.05), (0, 0.01), (2, 0.05)):
        readings.pass_by(0.05, 0.01, waits)
        assert stopwatch.lap_s() == pytest.approx(took_s)
    assert readings.asked == 5
    assert stopwatch.now == readings.now
