"""What a job remembers of its checkpoints for its result."""

from __future__ import annotations

import time
from typing import Any

from minirt import JobStatus
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import EndJob
from minirt.runtime.job import Recorder, job_result


def entry(checkpoint_id: int, status: str = "completed") -> dict[str, Any]:
    figures = {"mode": "aligned", "kind": "checkpoint", "duration_s": 0.1, "bytes": 1}
    about = {"checkpoint_id": checkpoint_id, "generation": 1, "status": status, "reason": "slow"}
    return {**figures, **about}


def test_all_completed_checkpoints_count_and_the_newest_are_kept() -> None:
    class Protocol:
        restarts = 0

    recorder = Recorder("sums", [], entries_max=2)
    for checkpoint in (entry(1), entry(2), entry(3, "failed"), entry(4)):
        recorder.on_checkpoint(checkpoint)
    protocol: JobProtocol = Protocol()  # type: ignore[assignment]
    ending = EndJob(JobStatus.FINISHED, None)
    result = job_result("sums", protocol, recorder, ending, time.monotonic())
    assert result.completed_checkpoints == 3
    assert [each["checkpoint_id"] for each in result.checkpoints] == [3, 4]
