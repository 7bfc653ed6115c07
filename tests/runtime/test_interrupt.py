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
try:
    env.execute(observer=Ready())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.processes
def test_an_interrupted_job_is_cancelled_and_the_interrupt_goes_on_to_the_caller() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", JOB],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("interrupted\n", 0)
    assert err.count("\n") == 1
    assert "SIGINT: job 'endless' is cancelled" in err
