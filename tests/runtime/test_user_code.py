"""User code that raises, exits or hangs: what the user is told, and that the job goes on if it may."""

from __future__ import annotations

import atexit
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    DiscardSink,
    Environment,
    JobFailedError,
    JobStatus,
    KeyedContext,
    KeyedProcess,
    Limits,
    Options,
    Process,
    ProcessContext,
    Restart,
    SequenceSource,
    UnsupportedValueError,
    ValueState,
)
from tests.runtime.jobs import numbers_of
from tests.runtime.processes import needs_proc, send, templates, wait_until, workers

RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]
IMPATIENT = Options(heartbeat_timeout="600ms", limits=Limits(heartbeat_s=0.1))
COUNT = 300


def first_time(flag: Path) -> bool:
    """True once, over all processes and restarts."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def failing_on_seven(record: int) -> float:
    return 1 / (record - 7)


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_error_shows_operator_record_and_its_own_traceback_and_none_gives_up_at_once(runner):
    env = Environment(parallelism=2)
    env.source(SequenceSource(10)).map(failing_on_seven, name="halve").sink(CollectSink())
    with pytest.raises(JobFailedError) as failure:
        env.execute("fractions", runner=runner, restart=Restart.none())
    message = str(failure.value)
    assert message.startswith("job 'fractions' failed: operator halve")
    assert "record 7\n" in message
    assert "in failing_on_seven" in message
    assert "1 / (record - 7)" in message
    assert message.endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_error_that_stays_ends_the_job_when_the_strategy_gives_up(runner):
    env = Environment()
    env.source(SequenceSource(10)).map(failing_on_seven).sink(CollectSink())
    with pytest.raises(
        JobFailedError, match=r"failed after 2 restarts: .*(?s:.)*ZeroDivisionError"
    ):
        env.execute(runner=runner, restart=Restart.fixed_delay(2, "10ms"))


def run_once_disturbed(disturb: Any, folder: Path, **settings: Any) -> tuple[int, list[int]]:
    """A job whose user code does something bad at record 200, only the first time."""
    env, sink, flag = Environment(parallelism=2), CollectSink(), folder / "flag"

    def disturbed(record: int) -> int:
        if record == 200 and first_time(flag):
            disturb()
        return record

    stream = numbers_of(env, COUNT, "numbers", per_second=1000)
    stream.key_by(lambda n: n).map(disturbed, name="disturbed").sink(sink)
    result = env.execute(
        checkpointing=Checkpointing(str(folder / "checkpoints"), interval="20ms"),
        restart=Restart.fixed_delay(1, "10ms"),
        **settings,
    )
    return result.restarts, sorted(sink.rows)


def raising() -> None:
    raise RuntimeError("once")


def hanging_in_a_c_call() -> None:
    """Holds the interpreter's lock, so that no other thread of the process runs either."""
    re.match(r"(a+)+$", "a" * 64 + "b")


@pytest.mark.parametrize("runner", RUNNERS)
def test_after_an_error_the_job_goes_on_from_its_checkpoint(runner, tmp_path):
    assert run_once_disturbed(raising, tmp_path, runner=runner) == (1, list(range(COUNT)))


@pytest.mark.processes
@pytest.mark.parametrize(
    "disturb",
    [sys.exit, lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGSEGV)],
    ids=["sys.exit", "os._exit", "crash"],
)
def test_user_code_that_ends_its_process_costs_one_restart(disturb, tmp_path):
    assert run_once_disturbed(disturb, tmp_path) == (1, list(range(COUNT)))


@pytest.mark.processes
def test_a_worker_that_hangs_in_user_code_is_replaced(tmp_path):
    outcome = run_once_disturbed(hanging_in_a_c_call, tmp_path, options=IMPATIENT)
    assert outcome == (1, list(range(COUNT)))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda n: sys.exit("enough"), r"failed on record \d(?s:.)*SystemExit: enough"),
        (lambda n: os._exit(3), r"worker 1 \(process \d+: .*over.*\) ended with exit code 3"),
        (lambda n: os.abort(), r"worker 1 \(process \d+: .*over.*\) was killed by SIGABRT"),
    ],
    ids=["sys.exit", "os._exit", "os.abort"],
)
def test_how_a_worker_ended_is_told(end, told):
    env = Environment()
    env.source(SequenceSource(10)).rebalance().map(end, name="over").sink(CollectSink())
    with pytest.raises(JobFailedError, match=told):
        env.execute(restart=Restart.none())


class Unreachable(Process):
    """What it needs is not there."""

    def open(self) -> None:
        raise ConnectionRefusedError("no database")

    def process(self, record: int, ctx: ProcessContext) -> list[int]:
        return [record]


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_error_while_opening_is_told_with_its_operator(runner):
    env = Environment()
    env.source(SequenceSource(10)).process(Unreachable(), name="lookup").sink(CollectSink())
    told = "operator lookup.* could not be opened(?s:.)*ConnectionRefusedError: no database"
    with pytest.raises(JobFailedError, match=told):
        env.execute(runner=runner)


class StopsItself(Process):
    """Freezes its process while it opens, the first time."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def open(self) -> None:
        if first_time(self._flag):
            os.kill(os.getpid(), signal.SIGSTOP)

    def process(self, record: int, ctx: ProcessContext) -> list[int]:
        return [record]


@pytest.mark.processes
def test_a_worker_that_hangs_while_it_starts_is_replaced(tmp_path):
    env, sink = Environment(), CollectSink()
    stream = env.source(SequenceSource(10)).rebalance()
    stream.process(StopsItself(tmp_path / "flag")).sink(sink)
    result = env.execute(options=IMPATIENT, restart=Restart.fixed_delay(1, "10ms"))
    assert (result.restarts, sorted(sink.rows)) == (1, list(range(10)))


@pytest.mark.processes
@needs_proc
def test_a_worker_that_is_stopped_by_a_signal_is_replaced(tmp_path):
    env, sink = Environment(), CollectSink()
    numbers_of(env, 1000, "numbers", per_second=1000).rebalance().sink(sink)
    job = env.start(
        checkpointing=Checkpointing(str(tmp_path), interval="20ms"),
        options=IMPATIENT,
        restart=Restart.fixed_delay(1, "10ms"),
    )
    wait_until(lambda: len(sink.rows) > 100, "first output")
    stopped = workers()[-1]
    send(stopped, signal.SIGSTOP)
    assert job.wait(60).restarts == 1
    assert sorted(sink.rows) == list(range(1000))


@pytest.mark.processes
@needs_proc
def test_nothing_is_left_of_a_job_that_failed_or_was_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env = Environment(parallelism=3)
    numbers_of(env, None, "numbers", per_second=100).rebalance().sink(DiscardSink())
    for pause in (0.3, 0.0):  # Cancelled at work, and while workers come up.
        job = env.start()
        wait_until(lambda: bool(workers()), "workers come up")
        time.sleep(pause)
        job.cancel()
        assert job.wait(20).status is JobStatus.CANCELLED
    failing = Environment()
    failing.source(SequenceSource(10)).map(failing_on_seven).sink(CollectSink())
    with pytest.raises(JobFailedError):
        failing.execute()
    assert templates() == []
    assert list(tmp_path.iterdir()) == []
    job.cancel()  # Too late, but no harm.


@pytest.mark.processes
def test_what_user_code_prints_appears_even_if_its_worker_is_killed(capfd):
    def talkative(record: int) -> int:
        print(f"<{record}>")
        if record == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return record

    env = Environment()
    env.source(SequenceSource(10)).map(talkative).sink(CollectSink())
    with pytest.raises(JobFailedError):
        env.execute(restart=Restart.none())
    assert capfd.readouterr().out.split() == [f"<{n}>" for n in range(10)]


class SaysGoodbye:
    """A function that has something to do at the end of each process that loads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = os.getpid()

    def __call__(self, record: int) -> int:
        return record

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if os.getpid() != self.pid:
            atexit.register(self.leave, os.getpid())

    def leave(self, pid: int) -> None:
        if os.getpid() == pid:
            (self.folder / str(pid)).touch()
            sys.stdout.write("goodbye ")


@pytest.mark.processes
@needs_proc
def test_what_is_registered_with_atexit_is_done_at_the_end_of_the_template(tmp_path, capfd):
    env = Environment()
    env.source(SequenceSource.endless()).map(SaysGoodbye(tmp_path)).sink(DiscardSink())
    job = env.start()
    wait_until(lambda: job.status is JobStatus.RUNNING, "the job runs")
    [template] = templates()
    job.cancel()
    job.wait_for_end()
    assert [int(path.name) for path in tmp_path.iterdir()] == [template]
    assert set(capfd.readouterr().out.split()) == {"goodbye"}


class Unstorable(KeyedProcess):
    seen = ValueState()

    def process(self, record: int, ctx: KeyedContext) -> None:
        self.seen.value = object()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_state_that_cannot_be_stored_fails_the_job_whenever_its_snapshot_is_taken(
    runner, mode, tmp_path
):
    """In aligned mode while the subtask works, in unaligned mode when a barrier arrives."""
    env = Environment()
    keyed = env.source(SequenceSource(1000)).key_by(lambda number: number)
    keyed.process(Unstorable()).sink(DiscardSink())
    with pytest.raises(JobFailedError, match="state 'seen' cannot be stored"):
        env.execute(
            runner=runner,
            restart=Restart.none(),
            checkpointing=Checkpointing(str(tmp_path), interval="10ms", mode=mode),
        )


class Keeps(KeyedProcess):
    """Keeps a value in its state."""

    value = ValueState()

    def __init__(self, value: Any) -> None:
        self._value = value

    def process(self, record: int, ctx: KeyedContext) -> list[int]:
        self.value.set(self._value())
        return [record]


class Failing:
    """Packing it fails the first time, as a value that asks a server would."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        if first_time(self._flag):
            raise OSError("the server of the value does not answer")
        return Failing, (self._flag,)


def keeping(value: Any, folder: Path, pickle: bool) -> Any:
    env = Environment()
    stream = env.source(SequenceSource(COUNT), uid="numbers").key_by(lambda number: number % 3)
    stream.process(Keeps(value), uid="keeps").sink(CollectSink(), uid="out")
    checkpointing = Checkpointing(str(folder / "checkpoints"), interval="10ms")
    return env.execute(
        runner="inline", checkpointing=checkpointing, options=Options(allow_pickle=pickle)
    )


@pytest.mark.parametrize("pickle", [False, True])
def test_a_value_of_state_that_can_never_be_stored_ends_the_job_without_a_restart(tmp_path, pickle):
    with pytest.raises(
        JobFailedError, match=r"^job 'job' failed: state of operator .*keeps"
    ) as failure:
        keeping(lambda: (n for n in ()), tmp_path, pickle)
    assert isinstance(failure.value.__cause__, UnsupportedValueError)


def test_a_value_of_state_whose_own_packing_fails_is_packed_again_after_a_restart(tmp_path):
    result = keeping(lambda: Failing(tmp_path / "failed"), tmp_path, pickle=True)
    assert result.status is JobStatus.FINISHED
    assert result.restarts == 1
