"""What the coordinator does on storage and with sinks: each task takes a command, returns an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from minirt.config import Checkpointing
from minirt.errors import (
    ConfigurationError,
    MinirtError,
    SupersededError,
    UserCodeError,
)
from minirt.graph.execution import ExecutionGraph
from minirt.monitoring.logs import log_fields, logger_of
from minirt.protocol.checkpoint_paths import CheckpointPaths
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
    StoreTrace,
)
from minirt.protocol.manifest import Manifest, ManifestKey
from minirt.protocol.preparing import Preparation, PreparationStep
from minirt.protocol.preparing_events import PreparingCommand
from minirt.protocol.reports import CheckpointReport
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.source_offsets import SourcesNotTold, SourcesTold, TellSources
from minirt.protocol.starting_point import StartingPoint
from minirt.runtime.control.package import Deployment
from minirt.runtime.control.shape import Shape
from minirt.runtime.coordinator.ends import JobEnds
from minirt.runtime.coordinator.preparation_tasks import PreparationTasks
from minirt.storage.checkpoints import COMMITTED, CheckpointStorage
from minirt.storage.history import EVENTS_MAX, History
from minirt.storage.savepoints import copy_checkpoint

logger = logger_of("coordinator")


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Keep what happened to the job where it survives the coordinator; it decides nothing."""

    entry: dict[str, Any]
    folder: str = CheckpointPaths.EVENTS
    entries_max: int = EVENTS_MAX


StorageCommand = (
    PrepareGeneration
    | StoreManifest
    | CommitHandles
    | TellSources
    | PublishSavepoint
    | CleanUp
    | RecordHistory
    | StoreTrace
    | RecordEvent
)
STORAGE_COMMANDS = (
    PrepareGeneration,
    StoreManifest,
    CommitHandles,
    TellSources,
    PublishSavepoint,
    CleanUp,
    RecordHistory,
    StoreTrace,
)


@dataclass(slots=True)
class StorageTasks:
    """Runs storage commands, one at a time. Without storage, generations live in memory only."""

    graph: ExecutionGraph
    storage: CheckpointStorage | None
    checkpointing: Checkpointing | None
    restore: RestoreOptions
    shape_at: Callable[[int], Shape] | None = None
    """Plans the job at another parallelism. Raises ConfigurationError if it cannot be planned."""
    _shape: Shape | None = field(init=False, default=None)
    """Set where the parallelism of the job follows its slots."""
    _preparation: Preparation = field(init=False)
    _preparing: PreparationTasks = field(init=False)
    _ends: JobEnds = field(init=False)
    _events: dict[str, History] = field(init=False, default_factory=dict)
    _committed_id: int = field(init=False, default=0)
    """The checkpoint of the newest commit that has succeeded."""

    def __post_init__(self) -> None:
        checkpointing = self.checkpointing
        self._preparation = Preparation(
            self.graph.topology,
            self.restore,
            stored=self.storage is not None,
            restored_watermarks=checkpointing is not None
            and checkpointing.watermarks == "restored",
        )
        staging = None if self.storage is None else self.storage.staging
        self._ends = JobEnds(self.graph, staging)
        self._preparing = PreparationTasks(self.graph, self._ends, self.storage)

    @property
    def _generation(self) -> int:
        """The one that is prepared, or was prepared last."""
        return self._preparation.generation

    def run(self, command: StorageCommand) -> JobEvent | None:
        """Carry out a command; failures come back as events, never as exceptions."""
        with log_fields(job=self.graph.name, generation=self._generation):
            try:
                event = self._run(command)
            except (Exception, SystemExit) as error:  # A sink may even call `sys.exit`.
                event = self._failed(command, error)
            return self._naming_the_successor(event)

    def _run(self, command: StorageCommand) -> JobEvent | None:
        match command:
            case PrepareGeneration():
                return self._prepare(command)
            case StoreManifest(manifest):
                return self._store(manifest)
            case CommitHandles(checkpoint_id, handles):
                self._ends.commit(handles)
                self._committed_id = checkpoint_id
                return HandlesCommitted(checkpoint_id)
            case TellSources(checkpoint_id, offsets):
                self._ends.tell_sources(offsets)
                return SourcesTold(checkpoint_id)
            case PublishSavepoint(manifest, path):
                return self._publish(manifest, path)
            case CleanUp():
                self._clean_up(command)
            case RecordHistory(report):
                self._record(report)
            case StoreTrace(trace):
                if self.storage is not None:
                    self.storage.write_trace(trace)
            case RecordEvent():
                self._record_event(command)
        return None

    def _naming_the_successor(self, event: JobEvent | None) -> JobEvent | None:
        """A ledger, for one, knows that there is another coordinator, but not who."""
        match event:
            case (
                GenerationFailed(error=SupersededError(by=None))
                | ManifestRefused(error=SupersededError(by=None))
                | CommitFailed(error=SupersededError(by=None))
                | SavepointNotPublished(error=SupersededError(by=None))
            ) if self.storage is not None:
                return replace(event, error=self.storage.superseded())
        return event

    def close(self) -> None:
        """The job is over: release what commits. In the thread that runs the commands."""
        self._ends.close()

    def deployment(self, generation: int, start: StartingPoint) -> Deployment:
        """What the workers of a generation that was prepared are given."""
        deployment = self._preparing.deployment(generation, start)
        return deployment if self._shape is None else replace(deployment, shape=self._shape)

    def _prepare(self, command: PrepareGeneration) -> JobEvent:
        if command.parallelism is not None:
            try:
                self._take_shape(command.parallelism)
            except ConfigurationError as error:
                return GenerationFailed(error, fatal=True)
        step = self.begin(command)
        while not isinstance(step, GenerationPrepared | GenerationFailed):
            step = self.go_on(step)
        if self._shape is not None and isinstance(step, GenerationPrepared):
            return replace(step, topology=self._shape.graph.topology)
        return step

    def _take_shape(self, parallelism: int) -> None:
        assert self.shape_at is not None
        self._shape = shape = self.shape_at(parallelism)
        self._preparation.take_shape(shape.graph.topology)
        self._preparing.take_shape(shape.graph)
        self._ends.take_shape(shape.graph)

    def begin(self, command: PrepareGeneration) -> PreparationStep:
        """Begin to prepare a generation, for a caller that carries out each step with `go_on`."""
        return self._preparation.handle(command)

    def go_on(self, step: PreparingCommand) -> PreparationStep:
        """Carry out one step of the preparation; what comes next, or how it has ended."""
        return self._preparation.handle(self._preparing.run(step))

    def _failed(self, command: StorageCommand, error: Exception | SystemExit) -> JobEvent | None:
        """What the job hears of a command that failed; None if it goes on without."""
        known = error if isinstance(error, Exception) else MinirtError(f"a sink raised {error!r}")
        match command:
            case PrepareGeneration():
                # What a step raises is an answer to it: this is an error of the preparation itself.
                return GenerationFailed(known, fatal=False)
            case StoreManifest() if isinstance(known, UserCodeError):
                return GenerationFailed(known, fatal=True)  # Later manifests hold it as well.
            case StoreManifest(manifest):
                return ManifestRefused(manifest.checkpoint_id, known)
            case CommitHandles(checkpoint_id):
                logger.warning("commit of checkpoint %d failed: %s", checkpoint_id, known)
                return CommitFailed(checkpoint_id, known)
            case TellSources(checkpoint_id):
                return SourcesNotTold(checkpoint_id, known)
            case PublishSavepoint(manifest):
                return SavepointNotPublished(manifest.checkpoint_id, known)
            case CleanUp():
                logger.warning("old checkpoints could not be deleted: %s", known)
            case RecordHistory():
                logger.warning("the checkpoint history could not be written: %s", known)
            case StoreTrace():
                logger.warning("the trace of a checkpoint could not be written: %s", known)
            case RecordEvent():
                logger.warning("the history of the job could not be written: %s", known)
        return None

    def _store(self, manifest: Manifest) -> JobEvent:
        checkpoint_id, storage = manifest.checkpoint_id, self.storage
        if storage is None:
            return ManifestStored(checkpoint_id)
        created = storage.create_manifest(self._preparing.with_committed(manifest))
        current = storage.is_current(manifest.generation)
        if not (created and current):
            return ManifestRefused(checkpoint_id, SupersededError())
        return ManifestStored(checkpoint_id)

    def _publish(self, manifest: Manifest, path: str | None) -> JobEvent:
        checkpoint_id, storage = manifest.checkpoint_id, self.storage
        assert storage is not None, "savepoints are refused without storage"
        original = storage.store.full_path(CheckpointPaths.folder(manifest.key).rstrip("/"))
        event: JobEvent = SavepointPublished(checkpoint_id, original)
        try:
            if not storage.is_current(self._generation):
                return SavepointNotPublished(checkpoint_id, SupersededError())
            if path is not None:
                target = storage.store.at(path)
                copy_checkpoint(manifest, storage.store, target)
                event = SavepointPublished(checkpoint_id, target.root)
        except Exception as error:
            event = SavepointNotPublished(checkpoint_id, error, original)
        if manifest.drain is not None:
            _end_drain(storage, manifest.key)
        return event

    def _clean_up(self, command: CleanUp) -> None:
        """A replaced coordinator deletes nothing: its successor may restore what looks old here."""
        storage = self.storage
        if storage is None or self.checkpointing is None:
            return
        if storage.is_current(self._generation):
            retain = self.checkpointing.retain
            storage.cleanup(retain, command.needed, command.unneeded)

    def _record(self, report: CheckpointReport) -> None:
        if self.storage is None:
            return
        entry = report.to_plain()
        # The entry comes behind the commit, so it costs no write of its own to remember that.
        if report.checkpoint_id == self._committed_id:
            entry[COMMITTED] = True
        self.storage.append_history(entry)

    def _record_event(self, command: RecordEvent) -> None:
        if self.storage is None:
            return
        folder, events = command.folder, self._events.get(command.folder)
        if events is None or events.generation != self._generation:
            store, entries_max = self.storage.store, command.entries_max
            events = self._events[folder] = History(store, folder, self._generation, entries_max)
        events.append(command.entry)


def _end_drain(storage: CheckpointStorage, key: ManifestKey) -> None:
    try:
        storage.end_drain(key)
    except MinirtError as error:
        logger.warning("the job is drained, but its next start will end it once more: %s", error)
