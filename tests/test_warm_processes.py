"""What comes from the nursery cannot be told from an interpreter that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

import minirt as rt
from tests.nursery import Start
from tests.runtime.processes import children, command_line, started_by, templates, wait_until
from tests.warm_processes import cold_starts

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all interpreters are started"),
]

ABOUT = """
import os, signal, sys
print(sys.argv, sys.orig_argv, sys.path, os.getcwd(), os.environ.get("ADDED"), sys.flags)
print(__name__, globals().get("__file__"), __spec__ and __spec__.name, getattr(__loader__, "name", 0))
print(sorted(name for name in globals() if name != "__warningregistry__"))
print([os.isatty(fd) for fd in (0, 1, 2)], os.getppid(), os.getpgrp() == os.getpid())
print(os.getsid(0) == os.getpid(), [signal.getsignal(n) for n in (2, 13, 15, 17)])
print([(s.mode, s.encoding, s.errors, s.line_buffering) for s in (sys.stdin, sys.stdout)])
print(sys.stdin.read(), open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)))
sys.stderr.write("said")
"""


def ran(*arguments: str, cold: bool, **options: object) -> tuple[int, str, str]:
    with cold_starts() if cold else nullcontext():
        done = subprocess.run(
            [sys.executable, *arguments], text=True, input="given", capture_output=True, **options
        )  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True},
        {"process_group": 0},
        {"env": {**os.environ, "ADDED": "1", "PYTHONPATH": "/a:/b"}},
    ],
    ids=["plain", "session", "group", "variables"],
)
@pytest.mark.parametrize("way", ["code", "script", "module"])
def test_a_program_finds_what_it_would_find(way: str, options: dict, tmp_path: Path) -> None:
    (tmp_path / "about.py").write_text(ABOUT)
    arguments = {"code": ["-c", ABOUT], "script": ["about.py"], "module": ["-m", "about"]}[way]
    arguments += ["one", "é"]
    status, out, err = ran(*arguments, cold=False, cwd=tmp_path, **options)
    cold_status, cold_out, cold_err = ran(*arguments, cold=True, cwd=tmp_path, **options)
    assert out.splitlines() == cold_out.splitlines()
    assert (status, err) == (cold_status, cold_err) == (0, "said")


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(7)",
        "raise SystemExit('told')",
        "import os; os._exit(9)",
        "import os; os.kill(os.getpid(), 2)",
        "import os; os.kill(os.getpid(), 15)",
        "import atexit; atexit.register(print, 'at exit'); print('first')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(.1), print(1))).start()",
        "import os, sys; print('lost'); os.close(1)",
    ],
)
def test_a_program_ends_as_it_would_end(code: str) -> None:
    status, out, err = ran("-c", code, cold=True)
    warm = ran("-c", code, cold=False)
    assert warm[:2] == (status, out)
    assert warm[2].splitlines()[-1:] == err.splitlines()[-1:]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-I", "-c", "1"],
        ["-O", "-c", "1"],
        ["no such.py"],
        ["-"],
        ["-c"],
        ["-W", "error", "-c", "1"],
    ],
    ids=" ".join,
)
def test_what_only_an_interpreter_can_be_is_started(arguments: list[str]) -> None:
    assert started([sys.executable, *arguments]) is None
    assert started(["ls"]) is None


def test_variables_that_are_read_at_the_start_want_one() -> None:
    command = [sys.executable, "-c", "1"]
    assert started(command) is not None
    assert started(command, {**os.environ, "PYTHONHASHSEED": "1"}) is None
    assert started(command, {**os.environ, "PYTHONPATH": "x"}) is not None


def test_a_command_in_a_network_namespace_is_known() -> None:
    """That it runs there is for tests of hosts, which cut them off."""
    found = started(["ip", "netns", "exec", "far", sys.executable, "-c", "1"])
    assert found is not None
    assert (found.namespace, found.arguments) == ("far", [sys.executable, "-c", "1"])
    assert started(["ip", "netns", "exec", "far", "ls"]) is None


def started(command: list[str], environ: dict[str, str] | None = None) -> Start | None:
    """What `subprocess` would have the nursery do."""
    given = None if environ is None else [f"{k}={v}".encode() for k, v in environ.items()]
    call = (command, (), True, (3,), None, given, -1, -1, -1, -1, -1, -1, 4, 3)
    return Start.of((*call, True, False, -1, None, None, None, -1, None, True))


def test_each_interpreter_that_a_program_starts_is_its_child_and_warm() -> None:
    about = "import os, sys; print('minirt' in sys.modules, os.getppid())"
    again = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {about!r}])"
    code = (
        "import os, subprocess, sys\n"
        f"for code in {[about, about, again, about]}:\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
        "print(os.getpid())\n"
    )
    status, out, err = ran("-c", code, cold=False)
    *said, own = out.splitlines()
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in said] == ["True"] * 4
    assert [line.split()[1] == own for line in said] == [True, True, False, True]


def test_a_template_has_no_children_but_workers() -> None:
    seen: list[set[int]] = []

    class Look(rt.JobObserver):
        def on_status(self, status: rt.JobStatus, generation: int) -> None:
            if status is rt.JobStatus.RUNNING:
                seen.extend(started_by(template) for template in templates())

    env = rt.Environment(parallelism=3)
    env.source(rt.SequenceSource(5)).sink(rt.DiscardSink())
    env.execute(observer=Look())
    assert [len(workers) for workers in seen] == [3]


def test_a_job_of_a_program_has_a_warm_template_and_nobody_is_left(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import minirt as rt\n"
        "env = rt.Environment('endless', parallelism=2)\n"
        "env.source(rt.SequenceSource.endless()).rebalance().sink(rt.DiscardSink())\n"
        "env.execute()\n"
    )
    program = subprocess.Popen([sys.executable, "job.py"], cwd=tmp_path)
    try:
        assert program.pid in children(os.getpid())
        assert psutil.Process(program.pid).cmdline()[:2] == [sys.executable, "job.py"]
        wait_until(lambda: len(templates(program.pid)) == 1, "its template")
        [template] = templates(program.pid)
        wait_until(lambda: len(children(template)) > 0, "workers")
        assert "minirt.runtime.worker.template" in command_line(template)
        assert os.getsid(template) == template
    finally:
        program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    wait_until(lambda: not psutil.pid_exists(template), "the template ends, too")
