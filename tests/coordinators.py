"""What coordinators of a job do with a ledger sink, call by call, without a job."""

from __future__ import annotations

from typing import Any

from minirt.data.batch import Rows
from minirt.io.base import Committable, CommitterContext, Sink, SinkContext, Staging
from minirt.testing.identities import played

JOB = played("job", "out")


def committer(sink: Sink, generation: int, staging: Staging) -> Any:
    return sink.open_committer(CommitterContext(JOB, "out", generation, staging))


def prepared(
    sink: Sink, checkpoint_id: int, generation: int, staging: Staging, **fields: Any
) -> list[Committable]:
    """What a checkpoint commits: one record, whose `id` is that of the checkpoint, with other fields."""
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, generation, staging))
    writer.write(Rows([{"id": checkpoint_id, **fields}]))
    ready = writer.prepare(checkpoint_id)
    assert ready.finish is not None
    ready.finish()
    writer.close()
    return [Committable(checkpoint_id, handle) for handle in ready.handles]
