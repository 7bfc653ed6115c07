"""Results that other threads bring: they wake the subtask, and no checkpoint loses one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import pytest

import minirt as rt
from minirt.testing import TransactionalSink, simulate
from tests.campaigns import modes, sampled, seeds
from tests.operators.asking import Asking, AskingOperator

COUNT = 60


def job(
    sink: rt.Sink, parallelism: int, function: Callable[[int], int], count: int = COUNT
) -> rt.Environment:
    env = rt.Environment("asking", parallelism=parallelism, max_parallelism=16)
    numbers = env.source(rt.SequenceSource(count, splits=3), uid="numbers")
    asked = numbers.rebalance().apply(Asking(function), uid="asking")
    asked.rebalance().sink(sink, uid="out")
    return env


def square(number: int) -> int:
    return number * number


def squares(count: int = COUNT) -> Counter[int]:
    return Counter(map(square, range(count)))


def simulated(mode: str, seed: int) -> Counter[int]:
    sink = TransactionalSink()
    forms = [job(sink, parallelism, square) for parallelism in (2, 3, 1)]
    simulate(
        forms[0],
        seed=seed,
        rescaled=forms[1:],
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
    ).check()
    return Counter(sink.rows)


@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_every_answer_leaves_once_whatever_crashes(mode: str) -> None:
    for seed in range(sampled(4)):
        assert simulated(mode, seed) == squares(), seed


def test_answers_that_wait_while_a_snapshot_forgets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: a request is taken for done once its answer has come."""
    snapshot = AskingOperator.snapshot

    def forgetful(self: AskingOperator) -> Mapping[str, bytes]:
        [(name, requests)] = snapshot(self).items()
        open = [request for request in msgpack.unpackb(requests) if not request[1]]
        return {name: msgpack.packb(open)}

    monkeypatch.setattr(AskingOperator, "snapshot", forgetful)
    assert any(simulated("unaligned", seed) != squares() for seed in seeds(40, first=10))


def slow_square(number: int) -> int:
    time.sleep(0.005)
    return number * number


@pytest.mark.processes
@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_threads_of_worker_processes_answer(tmp_path: Path, mode: str) -> None:
    sink = rt.CollectSink()
    job(sink, 2, slow_square).execute(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="20ms", mode=mode)
    )
    assert Counter(sink.rows) == squares()


def test_threads_answer_in_the_inline_runner() -> None:
    sink = rt.CollectSink()
    job(sink, 2, slow_square).execute(runner="inline")
    assert Counter(sink.rows) == squares()


@pytest.mark.processes
def test_an_answer_ends_the_wait_of_its_worker() -> None:
    """Nothing else does: all input has ended, and the next heartbeat is far."""

    def late(number: int) -> int:
        time.sleep(0.5)
        return number

    sink, began = rt.CollectSink(), time.monotonic()
    options = rt.Options(limits=rt.Limits(heartbeat_s=60), heartbeat_timeout="10m")
    job(sink, 1, late, count=1).execute(options=options)
    assert sink.rows == [0]
    assert time.monotonic() - began < 30


@pytest.mark.processes
def test_a_job_goes_on_from_requests_that_were_open_when_a_worker_failed(tmp_path: Path) -> None:
    marker = tmp_path / "failed"

    def failing_once(number: int) -> int:
        time.sleep(0.01)
        if number == COUNT // 2 and not marker.exists():
            marker.touch()
            raise ValueError("no answer")
        return number * number

    sink = rt.CollectSink()
    result: Any = job(sink, 2, failing_once).execute(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="20ms"),
        restart=rt.Restart.fixed_delay(1, 0.01),
    )
    assert result.restarts == 1
    assert Counter(sink.rows) == squares()


@pytest.mark.parametrize(
    "runner", ["inline", pytest.param("processes", marks=pytest.mark.processes)]
)
def test_a_call_that_raises_fails_the_job(runner: Any) -> None:
    def broken(number: int) -> int:
        raise ValueError("no answer")

    with pytest.raises(rt.MinirtError, match="no answer"):
        job(rt.DiscardSink(), 1, broken).execute(runner=runner, restart=rt.Restart.none())
