"""What the coordinator does on storage and with sinks: each task takes a command, returns an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from minirt.config import Checkpointing
from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    MinirtError,
    UserCodeError,
)
from minirt.graph.execution import ExecutionGraph, SubtaskId
from minirt.graph.job_graph import OperatorNode, SinkSpec, SourceSpec
from minirt.io.base import Handle, Sink, Split
from minirt.monitoring.logs import log_fields, logger_of
from minirt.protocol.job_events import (
    CleanUp,
    CommitFailed,
    CommitHandles,
    GenerationFailed,
    GenerationPrepared,
    HandlesCommitted,
    JobEvent,
    ManifestRefused,
    ManifestStored,
    PrepareGeneration,
    PublishSavepoint,
    RecordHistory,
    SavepointNotPublished,
    SavepointPublished,
    StoreManifest,
)
from minirt.protocol.manifest import CheckpointPaths, Manifest, ManifestKey, SinkHandles
from minirt.protocol.restore import plan_in_flight, plan_restore
from minirt.protocol.stored_watermarks import WatermarkPlan, plan_watermarks
from minirt.run_settings import FRESH, RestoreOptions
from minirt.runtime.assembly import Deployment
from minirt.storage.checkpoints import CheckpointStorage, RestorePoint
from minirt.storage.history import EVENTS_MAX, History
from minirt.storage.savepoints import copy_checkpoint

logger = logger_of("coordinator")

_TAKEN_OVER = "another coordinator has taken over this job's checkpoints"


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Keep what happened to the job where it survives the coordinator; it decides nothing."""

    entry: dict[str, Any]


StorageCommand = (
    PrepareGeneration
    | StoreManifest
    | CommitHandles
    | PublishSavepoint
    | CleanUp
    | RecordHistory
    | RecordEvent
)
STORAGE_COMMANDS = (
    PrepareGeneration,
    StoreManifest,
    CommitHandles,
    PublishSavepoint,
    CleanUp,
    RecordHistory,
)


@dataclass(slots=True)
class StorageTasks:
    """Runs storage commands, one at a time. Without storage, generations live in memory only."""

    graph: ExecutionGraph
    storage: CheckpointStorage | None
    checkpointing: Checkpointing | None
    restore: RestoreOptions
    deployment: Deployment | None = None
    """What the generation that was prepared last starts from."""
    damaged: set[ManifestKey] = field(default_factory=set)
    """Checkpoints that turned out to be unusable while subtasks read them."""
    _damage: CorruptCheckpointError | None = None
    _generation: int = 0
    _resolved: bool = False
    """Whether a generation of this run has put on record what it starts from."""
    _splits: dict[str, Sequence[Split]] = field(default_factory=dict)
    _events: History | None = None

    def run(self, command: StorageCommand) -> JobEvent | None:
        """Carry out a command; failures come back as events, never as exceptions."""
        with log_fields(job=self.graph.name, generation=self._generation):
            return self._run(command)

    def _run(self, command: StorageCommand) -> JobEvent | None:
        match command:
            case PrepareGeneration():
                return self._prepare_or_report()
            case StoreManifest(manifest):
                return self._store(manifest)
            case CommitHandles(checkpoint_id, handles):
                return self._commit_or_report(checkpoint_id, handles)
            case PublishSavepoint(manifest, path):
                return self._publish(manifest, path)
            case CleanUp(needed):
                self._clean_up(needed)
            case RecordHistory(entry):
                self._record(entry)
            case RecordEvent(entry):
                self._record_event(entry)
        return None

    def _prepare_or_report(self) -> JobEvent:
        try:
            return self._prepare()
        except (ConfigurationError, CorruptCheckpointError, JobFailedError, UserCodeError) as error:
            return GenerationFailed(error, fatal=True)
        except Exception as error:
            return GenerationFailed(error, fatal=False)

    def on_damage(self, error: CorruptCheckpointError) -> None:
        """A subtask could not read its part of the checkpoint that was restored last."""
        if self.deployment is not None and self.deployment.restored_from is not None:
            self._damage = error
            self.damaged.add(self.deployment.restored_from[1])

    def _prepare(self) -> JobEvent:
        if self._damage is not None and not self.restore.allow_fallback:
            raise self._damage
        if self.storage is None:
            self._generation += 1
            point, next_id = None, 1
            self.deployment = self._deployment(point)
        else:
            self._generation = self.storage.claim_generation()
            point = self._restore_point(self.storage)
            if point is not None:
                _warn_of_losses(point)
            self.deployment = self._deployment(point)
            base = None if point is None else point.base
            # From here on checkpoints that are newer than `base` no longer count.
            if not self.storage.resolve_generation(self._generation, base):
                raise JobFailedError(_TAKEN_OVER)
            self._resolved = True
            _sweep(self.storage)
            next_id = self.storage.next_checkpoint_id(point)
        manifest = None if point is None else point.manifest
        committed = () if manifest is None else manifest.sink_handles
        self._commit(committed)
        # Without storage nothing keeps generations of different runs apart.
        before = None if self.storage is None else self._generation
        for node, sink in self._sinks():
            sink.discard_uncommitted(_handles_of(committed, node.uid), node.label, before)
        return GenerationPrepared(self._generation, manifest, next_id)

    def _restore_point(self, storage: CheckpointStorage) -> RestorePoint | None:
        """The user's choice at first; later the newest checkpoint since, or again the user's choice."""
        find = partial(
            storage.restore_point,
            allow_fallback=self.restore.allow_fallback,
            exclude=self.damaged,
            without_in_flight_of=self.restore.ignore_in_flight_data_of,
        )
        which = self.restore.which
        if self._resolved:
            point = find("latest")
            if point is not None or which == "latest":
                return point
        if which is None or which == FRESH:
            return None
        point = find(which)
        self._check_in_flight_is_ignored(point)
        return point

    def _check_in_flight_is_ignored(self, point: RestorePoint | None) -> None:
        """What the user gives up must be there, or they took another checkpoint for the damaged one."""
        wanted = self.restore.ignore_in_flight_data_of
        if wanted is None:
            return
        if point is None or point.manifest.checkpoint_id != wanted:
            chosen = "none" if point is None else str(point.manifest.checkpoint_id)
            raise ConfigurationError(
                f"ignore_in_flight_data_of={wanted} has no effect: restore={self.restore.which!r} "
                f"chose checkpoint {chosen}; give restore={wanted} as well, or leave it out"
            )
        if not point.ignored:
            raise ConfigurationError(
                f"ignore_in_flight_data_of={wanted} has no effect: checkpoint {wanted} holds no "
                "in-flight data; leave it out"
            )

    def _deployment(self, point: RestorePoint | None) -> Deployment:
        if point is None:
            return Deployment(self._generation, splits=self._deal_splits(restored=set()))
        plan = plan_restore(
            point.manifest,
            self.graph,
            allow_non_restored_state=self.restore.allow_non_restored_state,
        )
        restored = {uid for parts in plan.values() for uid in parts}
        return Deployment(
            self._generation,
            restore=plan,
            in_flight=plan_in_flight(point.manifest, self.graph),
            watermarks=self._watermarks(point.manifest),
            restored_from=(point.storage, point.manifest.key),
            splits=self._deal_splits(restored),
        )

    def _watermarks(self, manifest: Manifest) -> WatermarkPlan:
        if self.checkpointing is None or self.checkpointing.watermarks == "regenerated":
            return {}
        return plan_watermarks(manifest.watermarks, self.graph)

    def _deal_splits(self, restored: set[str]) -> Mapping[SubtaskId, Sequence[tuple[int, Split]]]:
        """The splits of sources that start from the beginning, dealt round robin."""
        dealt: dict[SubtaskId, Sequence[tuple[int, Split]]] = {}
        for vertex in self.graph.vertices:
            node = vertex.operators[0]
            if not isinstance(node.spec, SourceSpec) or node.uid in restored:
                continue
            if node.uid not in self._splits:
                self._splits[node.uid] = list(node.spec.source.plan_splits(vertex.parallelism))
            splits = list(enumerate(self._splits[node.uid]))
            for subtask in vertex.subtasks():
                dealt[subtask] = splits[subtask.index :: vertex.parallelism]
        return dealt

    def _store(self, manifest: Manifest) -> JobEvent:
        checkpoint_id, storage = manifest.checkpoint_id, self.storage
        if storage is None:
            return ManifestStored(checkpoint_id)
        try:
            created = storage.create_manifest(manifest)
            current = storage.is_current(manifest.generation)
        except Exception as error:
            return ManifestRefused(checkpoint_id, str(error))
        if not (created and current):
            return ManifestRefused(checkpoint_id, _TAKEN_OVER, superseded=True)
        return ManifestStored(checkpoint_id)

    def _commit_or_report(self, checkpoint_id: int, handles: tuple[SinkHandles, ...]) -> JobEvent:
        try:
            self._commit(handles)
        except Exception as error:
            logger.warning("commit of checkpoint %d failed: %s", checkpoint_id, error)
            return CommitFailed(checkpoint_id, error)
        return HandlesCommitted(checkpoint_id)

    def _commit(self, held: Sequence[SinkHandles]) -> None:
        for node, sink in self._sinks():
            handles = _handles_of(held, node.uid)
            if handles:
                sink.commit(handles)

    def _sinks(self) -> Iterator[tuple[OperatorNode, Sink]]:
        for vertex in self.graph.vertices:
            for node in vertex.operators:
                if isinstance(node.spec, SinkSpec):
                    yield node, node.spec.sink

    def _publish(self, manifest: Manifest, path: str | None) -> JobEvent:
        checkpoint_id, storage = manifest.checkpoint_id, self.storage
        assert storage is not None, "savepoints are refused without storage"
        original = storage.store.full_path(CheckpointPaths.folder(manifest.key).rstrip("/"))
        try:
            if not storage.is_current(manifest.generation):
                raise JobFailedError(_TAKEN_OVER)
            if path is None:
                return SavepointPublished(checkpoint_id, original)
            target = storage.store.at(path)
            copy_checkpoint(manifest, storage.store, target)
        except MinirtError as error:
            reason = f"{error}; the checkpoint itself is {original}"
            return SavepointNotPublished(checkpoint_id, reason)
        return SavepointPublished(checkpoint_id, target.root)

    def _clean_up(self, needed: frozenset[ManifestKey]) -> None:
        if self.storage is None or self.checkpointing is None:
            return
        try:
            self.storage.cleanup(self.checkpointing.retain, needed)
        except MinirtError as error:
            logger.warning("old checkpoints could not be deleted: %s", error)

    def _record(self, entry: dict[str, Any]) -> None:
        if self.storage is None:
            return
        try:
            self.storage.append_history(entry)
        except MinirtError as error:
            logger.warning("the checkpoint history could not be written: %s", error)

    def _record_event(self, entry: dict[str, Any]) -> None:
        if self.storage is None:
            return
        if self._events is None or self._events.generation != self._generation:
            store, folder = self.storage.store, CheckpointPaths.EVENTS
            self._events = History(store, folder, self._generation, EVENTS_MAX)
        try:
            self._events.append(entry)
        except MinirtError as error:
            logger.warning("the history of the job could not be written: %s", error)


def _sweep(storage: CheckpointStorage) -> None:
    try:
        storage.sweep()
    except MinirtError as error:
        logger.warning("what crashed writers have left could not be removed: %s", error)


def _warn_of_losses(point: RestorePoint) -> None:
    """What was damaged or given up is never left out in silence."""
    for error in point.skipped:
        logger.warning("passed over: %s", error)
    if not point.ignored:
        return
    channels = [channel for captured in point.ignored for channel in captured.channels]
    logger.warning(
        "checkpoint %d is restored without its in-flight data: %d bytes of records in %d channels are lost",
        point.manifest.checkpoint_id,
        sum(channel.bytes for channel in channels),
        len({(channel.link, channel.sender, channel.receiver) for channel in channels}),
    )


def _handles_of(held: Sequence[SinkHandles], uid: str) -> list[Handle]:
    return [handle for part in held if part.uid == uid for handle in part.handles]
