"""The data that is queued in a job. A drain, and a barrier that does not overtake, have to wait for it."""

from __future__ import annotations

from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.runtime.coordinator.observer import JobProgress


def queued_bytes(metrics: SubtaskMetrics) -> int:
    """How many bytes a subtask holds in its input and output queues."""
    return metrics.queued_in_bytes + metrics.queued_out_bytes


def queued_in_words(progress: JobProgress) -> str:
    """How much is queued in all, and before which subtask most of it waits."""
    total = sum(map(queued_bytes, progress.metrics.values()))
    before = {id: metrics.queued_in_bytes for id, metrics in progress.metrics.items()}
    most = max(before, key=before.__getitem__, default=None)
    if most is None or not before[most]:
        return f"{total:,} bytes are queued"
    return (
        f"{total:,} bytes are queued, most of them before {progress.names[most]}: {before[most]:,}"
    )
