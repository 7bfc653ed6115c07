"""Ctrl-C while a job runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

JOB = """
import time
import minirt as rt

class Ready(rt.JobObserver):
    def on_status(self, status, generation):
        if status is rt.JobStatus.RUNNING:
            print("running", flush=True)

env = rt.Environment("endless")
env.source(rt.SequenceSource(10**9)).map(lambda n: time.sleep(0.001)).sink(rt.DiscardSink())
"""
CAUGHT = """
try:
    env.execute(observer=Ready())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def interrupted(script: str) -> tuple[str, str, int]:
    """What a script prints and how it ends that gets Ctrl-C while its job runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    os.kill(process.pid, signal.SIGINT)
    return *process.communicate(timeout=60), process.returncode


@pytest.mark.processes
def test_an_interrupted_job_is_cancelled_and_the_interrupt_goes_on_to_the_caller() -> None:
    out, err, status = interrupted(JOB + CAUGHT)
    assert (out, status) == ("interrupted\n", 0)
    assert err.count("\n") == 1
    assert "SIGINT: job 'endless' is cancelled" in err


@pytest.mark.processes
@pytest.mark.usefixtures("cold_starts")
def test_the_traceback_of_an_interrupt_ends_in_the_code_of_the_user() -> None:
    _, err, status = interrupted(JOB + "env.execute(observer=Ready())")
    assert status == -signal.SIGINT
    assert err.splitlines()[1:] == [
        "Traceback (most recent call last):",
        '  File "<string>", line 12, in <module>',
        "KeyboardInterrupt",
    ]
