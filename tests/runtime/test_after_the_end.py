"""A thread that outlives the main thread of its program, and starts a job then."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATE = """
import threading, time
import minirt as rt
{before}

def late():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    try:
        env = rt.Environment()
        env.source(rt.SequenceSource(5)).sink(rt.DiscardSink())
        env.start().wait()
    except rt.ConfigurationError as error:
        print(error)

threading.Thread(target=late).start()
"""


@pytest.mark.processes
@pytest.mark.usefixtures("cold_starts")
@pytest.mark.parametrize("before", ["", "rt.SequenceSource, rt.DiscardSink, rt.Environment"])
def test_a_job_that_nobody_can_wait_for_says_what_to_wait_for(before: str) -> None:
    """What it needs may be imported before or not."""
    program = [sys.executable, "-c", LATE.format(before=before)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert "main thread has ended" in ended.stdout, ended.stderr
    assert "join()" in ended.stdout
    assert "Traceback" not in ended.stderr
