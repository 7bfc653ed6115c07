"""A job that fails between the start of its processes and that of its coordinator."""

from __future__ import annotations

from typing import Any

import pytest

import minirt as rt
from minirt.errors import StorageError
from minirt.runtime.cluster.process_cluster import ProcessCluster


@pytest.mark.processes
@pytest.mark.parametrize("failing", ["hold_lease", "Job"])
def test_it_leaves_nothing(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    close = ProcessCluster.close

    def noting(self: ProcessCluster, *how: Any) -> None:
        closed.append(self)
        close(self, *how)

    def full(*given: Any) -> None:
        raise StorageError("no room")

    execute = "minirt.runtime.program.execute"
    monkeypatch.setattr(ProcessCluster, "close", noting)
    monkeypatch.setattr(f"{execute}.set_up_program", lambda *how: lambda: closed.append("logs"))
    monkeypatch.setattr(f"{execute}.{failing}", full)
    env = rt.Environment()
    env.source(rt.SequenceSource(5)).sink(rt.DiscardSink())
    with pytest.raises(StorageError, match="no room"):
        env.start()
    assert [type(one) for one in closed if one != "logs"] == [ProcessCluster]
    assert closed.count("logs") == 1
