"""Signals at any moment of a job's life: it ends in an orderly way, says so, and leaves nobody behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.config import Checkpointing, Options
from minirt.errors import ConfigurationError
from minirt.run_settings import RunSettings
from tests.runtime.processes import wait_until

pytestmark = pytest.mark.processes

THREADS_AT_EXIT = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="Python 3.12 before 3.12.3 starts no threads while a program ends",
)

PROGRAM = """
import sys
import time
import minirt as rt

class Ready(rt.JobObserver):
    def on_status(self, status, generation):
        print(status.value, flush=True)

mode, on_signal = sys.argv[1:3]
env = rt.Environment("endless", parallelism=2)
numbers = env.source(rt.SequenceSource.endless(splits=2), uid="numbers")
numbers.map(lambda n: (time.sleep(0.001), n)[1]).sink(rt.JsonlSink("out"), uid="out")
settings = dict(
    checkpointing=rt.Checkpointing("stored", interval="200ms"),
    options=rt.Options(on_signal=on_signal),
    observer=Ready(),
)
try:
    if mode == "execute":
        env.execute(**settings)
    elif mode == "wait":
        env.start(**settings).wait()
    elif mode == "last":
        env.start(**settings)
    elif mode == "error":
        env.start(**settings)
        time.sleep(1)
        raise ValueError("the program fails")
finally:
    print("finally", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def start(mode: str, on_signal: str = "cancel") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "program.py", mode, on_signal],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until_running(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line == "running\n":
            return
    raise AssertionError(process.communicate())


def children(pid: int) -> list[int]:
    """All descendants."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        direct = [int(child) for child in found.read_text().split()]
    except OSError:
        return []
    return [*direct, *(each for child in direct for each in children(child))]


def last_event() -> dict[str, Any]:
    return rt.open_checkpoints("stored").events()[-1]


@pytest.mark.parametrize("mode", ["execute", "wait", pytest.param("last", marks=THREADS_AT_EXIT)])
@pytest.mark.parametrize("on_signal", ["cancel", "stop"])
def test_a_service_that_is_told_to_end_ends_its_job_first(
    folder: Path, mode: str, on_signal: str
) -> None:
    process = start(mode, on_signal)
    until_running(process)
    workers = children(process.pid)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (0 if on_signal == "stop" else 143), err
    event = last_event()
    assert event["event"] == ("stopped" if on_signal == "stop" else "cancelled")
    assert event["cause"] == "SIGTERM"
    assert "SIGTERM: job 'endless'" in err
    assert "Traceback" not in err
    assert "finally\n" in out or mode == "last"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "all are gone")
    if on_signal == "stop":
        assert rt.open_checkpoints("stored").latest().manifest.kind == "savepoint"


@pytest.mark.usefixtures("cold_starts")
@pytest.mark.parametrize("seed", range(4))
def test_a_signal_at_any_moment_leaves_no_process_and_a_true_history(
    folder: Path, seed: int
) -> None:
    chance = random.Random(seed)
    number = chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    process = start(chance.choice(["execute", "last"]))
    time.sleep(chance.uniform(0.0, 3.0))
    workers = children(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    # Before minirt has taken the signal over, it does what it always does.
    assert process.returncode in (-number, 128 + number), (out, err)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "all are gone")
    if "preparing" in out:
        assert (last_event()["event"], last_event()["cause"]) == ("cancelled", number.name)


def test_a_second_signal_ends_the_program_at_once(folder: Path) -> None:
    process = start("execute", "stop")
    until_running(process)
    workers = children(process.pid)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)  # The savepoint never comes.
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "SIGTERM" in process.stderr.readline()
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert time.monotonic() - began < 30.0
    for pid in workers:
        # On a busy machine they have been given up as silent by now.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "all are gone")
    process.communicate()


@THREADS_AT_EXIT
def test_a_program_that_fails_cancels_the_job_that_it_has_started(folder: Path) -> None:
    process = start("error")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ValueError: the program fails" in err
    assert "job 'endless' is cancelled" in err
    assert (last_event()["event"], last_event()["cause"]) == ("cancelled", "the program ended")


def test_handlers_are_what_they_were_and_those_of_the_program_stay() -> None:
    def mine(number: int, frame: object) -> None:
        """The program has its own ideas."""

    before = signal.signal(signal.SIGTERM, mine)
    handlers = []

    class Look(rt.JobObserver):
        def on_status(self, status: rt.JobStatus, generation: int) -> None:
            handlers.append((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)))

    try:
        env = rt.Environment()
        env.source(rt.SequenceSource(5)).sink(rt.DiscardSink())
        env.execute(observer=Look())
        assert {term for term, _ in handlers} == {mine}
        assert {hup for _, hup in handlers} != {signal.SIG_DFL}
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stop_by_signal_needs_somewhere_to_store_its_savepoint() -> None:
    with pytest.raises(ConfigurationError, match="needs checkpointing"):
        RunSettings(options=Options(on_signal="stop"))
    RunSettings(Checkpointing("stored"), options=Options(on_signal="stop"))


@pytest.mark.parametrize("closed", ["by its reader", "from the start"])
def test_workers_print_on_when_nobody_reads(folder: Path, closed: str) -> None:
    code = (
        "import minirt as rt\n"
        "env = rt.Environment(parallelism=2)\n"
        "env.source(rt.SequenceSource(20_000)).map(lambda n: print(n) or n).sink(rt.PrintSink())\n"
        "result = env.execute()\n"
        "import sys; sys.stderr.write(f'{result.status.value} {result.restarts}')\n"
    )
    (folder / "prints.py").write_text(code)
    tail = "| head -1 > first" if closed == "by its reader" else ">&-"
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} prints.py {tail}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.stderr == "finished 0"


def test_what_is_printed_does_not_land_in_a_file_that_has_the_number_of_standard_output(
    folder: Path,
) -> None:
    code = (
        "kept = open('kept', 'w')\n"
        "assert kept.fileno() == 1\n"
        "from minirt.standard_streams import outlive_readers\n"
        "outlive_readers()\n"
        "print('printed', flush=True)\n"
    )
    (folder / "prints.py").write_text(code)
    command = ["bash", "-c", f"{sys.executable} prints.py >&-"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (folder / "kept").read_text() == ""
