"""Carries out what the preparation of a generation orders: on storage, with sources and with sinks."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from minirt.errors import MinirtError
from minirt.graph.execution import ExecutionGraph
from minirt.io.base import Split
from minirt.monitoring.logs import logger_of
from minirt.protocol.manifest import Manifest, ManifestKey
from minirt.protocol.preparing_events import (
    BuildOn,
    ClaimGeneration,
    CommitRestored,
    DiscardUncommitted,
    Done,
    DrainFound,
    EndDrain,
    GenerationClaimed,
    GenerationResolved,
    ListCheckpoints,
    LookForDrain,
    OpenCommitter,
    PlanSplits,
    PreparingCommand,
    PreparingEvent,
    ReadCheckpoint,
    ResolveGeneration,
    SplitsPlanned,
    StepFailed,
    Sweep,
    Warn,
)
from minirt.protocol.starting_point import StartingPoint
from minirt.runtime.control.package import Deployment
from minirt.runtime.coordinator.ends import JobEnds
from minirt.runtime.coordinator.split_checks import check_splits
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.identity import job_identity
from minirt.storage.restore_points import list_checkpoints, read_checkpoint

logger = logger_of("coordinator")


class PreparationTasks:
    """Keeps what the protocol does not know: the splits of sources, and the identity of the job."""

    def __init__(
        self, graph: ExecutionGraph, ends: JobEnds, storage: CheckpointStorage | None
    ) -> None:
        self._graph = graph
        self._ends = ends
        self._storage = storage
        self._job = uuid4().hex if storage is None else ""
        """The identity of the job. A run without storage gets one that no other run has."""
        self._splits: dict[str, Sequence[Split]] = {}

    def take_shape(self, graph: ExecutionGraph) -> None:
        """The next generations are planned like this."""
        self._graph = graph

    def run(self, command: PreparingCommand) -> PreparingEvent:
        """Carry out a command; failures come back as events, never as exceptions."""
        try:
            return self._run(command)
        except Exception as error:
            return StepFailed(error)
        except SystemExit as error:  # A source or sink may even call `sys.exit`.
            return StepFailed(MinirtError(f"a source or sink raised {error!r}"))

    def _run(self, command: PreparingCommand) -> PreparingEvent:
        match command:
            case PlanSplits(uid):
                return self._plan_splits(uid)
            case OpenCommitter(uid, generation):
                self._ends.begin(self._job, generation)
                self._ends.committer(uid)
            case CommitRestored(uid, held):
                self._ends.commit_restored(uid, held)
            case DiscardUncommitted(uid, handles):
                self._ends.committer(uid).discard_uncommitted(handles)
            case Warn(text):
                logger.warning("%s", text)
            case _:
                assert self._storage is not None
                return self._on_storage(self._storage, command)
        return Done()

    def _on_storage(self, storage: CheckpointStorage, command: PreparingCommand) -> PreparingEvent:
        match command:
            case ClaimGeneration():
                return self._claim(storage)
            case ListCheckpoints(root):
                return list_checkpoints(storage, root)
            case ReadCheckpoint():
                return read_checkpoint(storage, command)
            case LookForDrain(key):
                return DrainFound(storage.drain_is_over(key))
            case ResolveGeneration(generation, base):
                return GenerationResolved(storage.resolve_generation(generation, base))
            case BuildOn(manifest):
                storage.build_on(manifest)
                self._ends.build_on(self._job, manifest)
                if _is_committed(storage, manifest.key):
                    self._ends.remember_committed(manifest)
            case EndDrain(key):
                storage.end_drain(key)
            case Sweep():
                _sweep(storage)
        return Done()

    def with_committed(self, manifest: Manifest) -> Manifest:
        """Give the manifest as it is stored: it tells whose it is, and what is known as committed."""
        return self._ends.with_committed(self._job, manifest)

    def deployment(self, generation: int, start: StartingPoint) -> Deployment:
        """What workers are given: with the storage and the splits that the starting point names."""
        restored_from = None
        if start.checkpoint is not None:
            storage, root = self._storage, start.checkpoint.root
            assert storage is not None
            restored_from = (storage if root is None else storage.at(root), start.checkpoint.key)
        splits = {
            id: [(place, self._split(id.vertex, place)) for place in places]
            for id, places in start.splits.items()
        }
        return Deployment(
            generation,
            self._job,
            restore=start.restore,
            in_flight=start.in_flight,
            watermarks=start.watermarks,
            restored_from=restored_from,
            splits=splits,
        )

    def _claim(self, storage: CheckpointStorage) -> PreparingEvent:
        generation = storage.claim_generation()
        self._ends.build_on(self._job, None)
        if not self._job:  # It is the same in each generation.
            self._job = job_identity(storage.store)
        return GenerationClaimed(generation)

    def _plan_splits(self, uid: str) -> PreparingEvent:
        node = self._ends.node(uid)
        planned = self._ends.plan_splits(uid)
        check_splits(planned, node)
        self._splits[uid] = planned
        return SplitsPlanned(len(planned))

    def _split(self, vertex: int, place: int) -> Split:
        return self._splits[self._graph.vertices[vertex].operators[0].uid][place]


def _is_committed(storage: CheckpointStorage, key: ManifestKey) -> bool:
    """Look into the history; one that cannot be read tells nothing."""
    try:
        return storage.output_is_committed(key)
    except Exception as error:
        logger.warning("the history of checkpoints could not be read: %s", error)
        return False


def _sweep(storage: CheckpointStorage) -> None:
    try:
        storage.sweep()
    except Exception as error:
        logger.warning("what crashed writers have left could not be removed: %s", error)
