"""What the coordinator does on storage and with sinks, when another one takes over meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import minirt as rt
from minirt.data.batch import Rows
from minirt.graph.planner import build_execution_graph
from minirt.io.base import Handle
from minirt.protocol.job_events import GenerationPrepared, PrepareGeneration
from minirt.protocol.restore_options import RestoreOptions
from minirt.runtime.coordinator.storage_tasks import StorageTasks
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.identity import job_identity
from minirt.storage.store import ObjectStore
from minirt.testing import TransactionalSink


class Interrupted(TransactionalSink):
    """Something happens before it discards anything."""

    before_discarding: Callable[[], None] | None = None

    def discard_uncommitted(
        self, committed: Sequence[Handle], identity: rt.SinkIdentity, before_generation: int
    ) -> None:
        happening, self.before_discarding = self.before_discarding, None
        if happening is not None:
            happening()
        super().discard_uncommitted(committed, identity, before_generation)


def tasks(sink: rt.Sink, folder: Path) -> StorageTasks:
    env = rt.Environment()
    env.source(rt.SequenceSource(3), uid="numbers").sink(sink, uid="out")
    checkpointing = rt.Checkpointing(str(folder))
    storage = CheckpointStorage(ObjectStore(str(folder)), 0)
    return StorageTasks(
        build_execution_graph(env.graph()), storage, checkpointing, RestoreOptions("latest")
    )


def context(folder: Path, generation: int) -> rt.SinkContext:
    job = job_identity(ObjectStore(str(folder)))
    return rt.SinkContext(rt.SinkIdentity(job, "out"), "out", 0, 1, generation)


def test_a_coordinator_that_was_replaced_leaves_its_successors_output_alone(
    tmp_path: Path,
) -> None:
    sink = Interrupted()
    handles: list[Handle] = []

    def take_over() -> None:
        assert isinstance(tasks(sink, tmp_path).run(PrepareGeneration()), GenerationPrepared)
        writer = sink.open_writer(context(tmp_path, generation=2))
        writer.write(Rows(["of the successor"]))
        prepared = writer.prepare(1)
        assert prepared.finish is not None
        prepared.finish()
        handles.extend(prepared.handles)

    sink.before_discarding = take_over
    first = tasks(sink, tmp_path)
    first.run(PrepareGeneration())
    sink.commit(handles)
    assert sink.rows == ["of the successor"]


def test_a_start_discards_what_earlier_generations_left_behind(tmp_path: Path) -> None:
    sink = TransactionalSink()
    tasks(sink, tmp_path).run(PrepareGeneration())
    writer = sink.open_writer(context(tmp_path, generation=1))
    writer.write(Rows(["never committed"]))
    finish = writer.prepare(1).finish
    assert finish is not None
    finish()
    assert len(sink.pending) == 1
    tasks(sink, tmp_path).run(PrepareGeneration())
    assert sink.pending == {}
