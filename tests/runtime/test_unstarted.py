"""A job that fails between the start of its processes and that of its coordinator."""

from __future__ import annotations

from typing import Any

import pytest

import minirt as rt
from minirt.errors import StorageError
from minirt.runtime.cluster.process_cluster import ProcessCluster


@pytest.mark.processes
def test_it_leaves_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[ProcessCluster] = []
    close = ProcessCluster.close

    def noting(self: ProcessCluster, *how: Any) -> None:
        closed.append(self)
        close(self, *how)

    def full(*given: Any) -> None:
        raise StorageError("no room")

    monkeypatch.setattr(ProcessCluster, "close", noting)
    monkeypatch.setattr("minirt.runtime.program.execute.hold_lease", full)
    env = rt.Environment()
    env.source(rt.SequenceSource(5)).sink(rt.DiscardSink())
    with pytest.raises(StorageError, match="no room"):
        env.start()
    assert len(closed) == 1
