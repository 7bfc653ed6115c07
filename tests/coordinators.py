"""What coordinators of a job do with a ledger sink, call by call, without a job."""

from __future__ import annotations

from typing import Any

import pytest

from minirt.data.batch import Rows
from minirt.errors import SupersededError
from minirt.io.base import Committable, CommitterContext, Sink, SinkContext, Staging
from minirt.testing.identities import played
from minirt.testing.sinks import SinkTrial

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


def check_two_coordinators(trial: SinkTrial, staging: Staging) -> None:
    """Of two coordinators at once the older one ends with an error, and commits nothing any more."""
    trial.begin()
    sink = trial.sink()
    old = committer(sink, 1, staging)
    old.commit(prepared(sink, 1, 1, staging, name="first"))
    late = prepared(sink, 2, 1, staging, name="late")
    new = committer(sink, 2, staging)
    with pytest.raises(SupersededError):
        old.commit(late)
    new.discard_uncommitted([])
    with pytest.raises(SupersededError):
        old.commit(late)
    new.commit(prepared(sink, 3, 2, staging, name="new"))
    with pytest.raises(SupersededError):
        old.commit(late)
    with pytest.raises(SupersededError):
        committer(sink, 1, staging)
    again = prepared(sink, 4, 2, staging, name="again")
    new.commit(again)
    new.commit(again)
    assert sorted(trial.visible()) == [1, 3, 4]
    old.close()
    new.close()
