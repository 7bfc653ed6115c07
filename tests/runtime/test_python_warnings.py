"""What Python warns of by its own rules is nothing that a user of minirt could mend: no job causes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os
import signal
from pathlib import Path

import minirt as rt

killed = Path("killed")


async def asked(record):
    if record["n"] == 50 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return record


env = rt.Environment("warned", parallelism=2)
rows = [{"n": n, "key": n % 3} for n in range(100)]
marks = rt.Watermarks.monotonous(timestamp="n")
stream = env.source(rt.CollectionSource(rows), uid="rows", watermarks=marks).map_async(asked)
windows = stream.key_by("key").window(rt.Tumbling("10ms"))
windows.aggregate(rt.Sum("n"), uid="sums").sink(rt.JsonlSink("out"), uid="out")

if __name__ == "__main__":
    result = env.execute(checkpointing=rt.Checkpointing("checkpoints", interval="50ms"))
    print(result.status.value, result.restarts)
"""


@pytest.mark.processes
@pytest.mark.usefixtures("cold_starts")
def test_a_job_that_restarts_warns_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "always"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stdout == "finished 1\n", ran.stderr
    warned = [line for line in ran.stderr.splitlines() if "Warning: " in line]
    assert [line for line in warned if "minirt" in line] == []
