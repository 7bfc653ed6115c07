"""How many checkpoints have failed in a row, and whether that is more than a job bears."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.protocol.reasons import CheckpointFailure, GenerationFailure, GenerationFailureReason


@dataclass(slots=True)
class Failures:
    """Those of the checkpoints of one generation, and of local snapshots."""

    in_a_row: int = 0
    """Of checkpoints, since one was complete."""
    last: CheckpointFailure | None = None

    def too_many(self, declined_in_a_row: int, tolerable: int) -> GenerationFailure | None:
        """Why the job should fail; `declined_in_a_row` are local snapshots of one subtask."""
        count = max(self.in_a_row, declined_in_a_row)
        if count <= tolerable:
            return None
        reason = GenerationFailureReason.CHECKPOINTS_FAILED
        return GenerationFailure(reason, count=count, checkpoint=self.last)
