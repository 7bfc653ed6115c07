"""A job of two hosts, one of which has other clocks: it goes on as if all clocks were alike."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from tests.cluster.agents import PlayedCluster, agents_of
from tests.cluster.test_agents import finishes, running, start
from tests.runtime.processes import needs_proc, send, wait_until

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, needs_proc]

HOUR_S = 3600.0
_DAY_S = 24 * HOUR_S
_DURATIONS = ("start_delay_s", "alignment_s", "sync_s", "async_s", "acknowledged_after_s")


def shifted(folder: Path, wall_s: float) -> tuple[str, ...]:
    """What runs a Python whose wall clock is so far ahead; its machine has been up for a day longer."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import time\n"
        "wall, monotonic = time.time, time.monotonic\n"
        f"time.time = lambda: wall() + {wall_s!r}\n"
        f"time.monotonic = lambda: monotonic() + {_DAY_S!r}\n"
    )
    path = os.pathsep.join([str(folder), *(path for path in sys.path if path)])
    return ("env", f"PYTHONPATH={path}")


@pytest.mark.parametrize(
    ("mode", "ahead_s"),
    [
        pytest.param(rt.AlignedWithTimeout("30s"), HOUR_S, id="aligned_with_timeout"),
        pytest.param("unaligned", -HOUR_S, id="unaligned"),
        pytest.param("uncoordinated", HOUR_S, id="uncoordinated", marks=pytest.mark.soak),
    ],
)
def test_a_host_whose_clocks_are_off_serves_like_any_other(
    tmp_path: Path, mode: Any, ahead_s: float
) -> None:
    began = time.monotonic()
    job = start(tmp_path, PlayedCluster(), mode=mode)
    with agents_of(job) as agents:
        agents.add(1)
        late = agents.add(1, prefix=shifted(tmp_path / "clocks", ahead_s))
        running(job)
        wait_until(lambda: job.figures.checkpoints.completed >= 2, "checkpoints")
        send(late.workers[0], signal.SIGKILL)
        result = finishes(job, tmp_path)
    assert result.restarts == 1
    lasted_s = time.monotonic() - began
    completed = [report for report in result.checkpoints if report.completed]
    assert completed
    for report in completed:
        assert 0 <= report.duration_s <= lasted_s
        for part in report.subtasks:
            assert all(0 <= getattr(part, name) <= lasted_s for name in _DURATIONS), part
            if isinstance(mode, rt.AlignedWithTimeout):
                assert not part.unaligned, "no barrier is 30 s old"
