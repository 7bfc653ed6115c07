"""Hands what coordinator and uploader have to say to the subtasks of a worker, wherever that runs."""

from __future__ import annotations

from collections.abc import Collection

from minirt.protocol.job_events import JobEvent, SnapshotAcknowledged
from minirt.runtime.messages import Abort, Drain, Resume, SourceMessage, Trigger
from minirt.runtime.subtask import Subtask


def deliver(message: SourceMessage | Abort, subtasks: Collection[Subtask]) -> None:
    """Tell all subtasks, or those among them that are sources."""
    sources = [subtask for subtask in subtasks if subtask.gate is None]
    match message:
        case Trigger(barrier, pause):
            for source in sources:
                source.on_trigger(barrier, pause=pause)
        case Resume():
            for source in sources:
                source.resume()
        case Drain():
            for source in sources:
                source.drain()
        case Abort(checkpoint_id):
            for subtask in subtasks:
                subtask.on_abort(checkpoint_id)


def deliver_stored(result: JobEvent, subtasks: Collection[Subtask]) -> None:
    """Tell the subtask whose snapshot was uploaded that it is durable, if it is."""
    if isinstance(result, SnapshotAcknowledged) and result.snapshot is not None:
        for subtask in subtasks:
            if subtask.id == result.subtask:
                subtask.on_stored(result.checkpoint_id, result.snapshot)
