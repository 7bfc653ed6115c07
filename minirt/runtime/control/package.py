"""What travels to the processes of a job: the job itself, and what a generation of it starts from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from minirt.clock import SYSTEM_CLOCK, Clock
from minirt.config import Options
from minirt.graph.crossings import Crossings
from minirt.graph.execution import ExecutionGraph
from minirt.io.base import Split
from minirt.kernels.choice import choose_kernels
from minirt.monitoring.program_logging import ProgramLogging
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.redistribution import InFlightPlan
from minirt.protocol.restart_commands import FallenBack
from minirt.protocol.restore import RestorePlan
from minirt.protocol.stored_watermarks import WatermarkPlan
from minirt.runtime.control.shape import Shape
from minirt.script_classes import load_job
from minirt.storage.checkpoints import CheckpointStorage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobPackage:
    """What never changes over the life of a job. `graph` is pickled: each subtask gets its own copy."""

    graph: bytes
    options: Options
    modes: Mapping[str, CheckpointMode]
    """By name: that of the job, and those that a savepoint may ask for."""
    storage: CheckpointStorage | None
    clock: Clock = SYSTEM_CLOCK
    """What all processes of the job go by."""
    logging: ProgramLogging | None = None
    """How workers log, if the program has set that up."""
    local: LocalSnapshots | None = None
    """When subtasks take snapshots by their own clocks, in a job of the uncoordinated family."""
    alone: frozenset[SubtaskId] = frozenset()
    """Those whose workers may come back alone; in a job of the uncoordinated family."""
    prunes: bool = False
    """Whether senders leave out columns that their receiver does not look at. Not where the job's own
    checkpoints hold records in flight: these must serve an edited job as well, which looks at others."""
    in_flags: bool = False
    """Word messages of the job's processes for the command line, as its program does."""

    def load_graph(self) -> ExecutionGraph:
        graph: ExecutionGraph = load_job(self.graph)
        return graph

    def choose_kernels(self) -> None:
        """Have this process use the kernels that the options ask for, if the job has work for them.

        Raises ConfigurationError if they cannot be had.
        """
        if Crossings(self.load_graph()).hashes_columns():
            choose_kernels(self.options.kernels)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a generation starts from. `splits` are those of sources without restored state.

    `job` tells the job from every other: it is part of the `SinkIdentity` of its sinks.
    """

    generation: int
    job: str = ""
    restore: RestorePlan = field(default_factory=dict)
    in_flight: InFlightPlan = field(default_factory=dict)
    watermarks: WatermarkPlan = field(default_factory=dict)
    restored_from: tuple[CheckpointStorage, ManifestKey] | None = None
    splits: Mapping[SubtaskId, Sequence[tuple[int, Split]]] = field(default_factory=dict)
    shape: Shape | None = None
    """How the job is planned, where that is not for its whole life as in the package."""
    life: int = 0
    """How often the worker has come back that gets it."""
    fallen_back: Mapping[SubtaskId, FallenBack] = field(default_factory=dict)
    """Of a worker that has come back: what its subtasks have fallen back to."""

    @property
    def processed(self) -> dict[ChannelId, int]:
        """By channel, how many records those have processed that it is for, before they fell back."""
        return dict(one for at in self.fallen_back.values() for one in at.cut.processed or ())

    @property
    def marks(self) -> dict[ChannelId, tuple[int, int]]:
        """By channel that goes out of those that have fallen back: the number of the snapshot, and how many
        elements lie ahead of it."""
        cuts = [at.cut for at in self.fallen_back.values()]
        return {channel: (cut.number, sent) for cut in cuts for channel, sent in cut.sent}

    def only(self, subtasks: Collection[SubtaskId]) -> Deployment:
        """What these subtasks need of it."""
        return replace(
            self,
            shape=None,
            restore=_of(self.restore, subtasks),
            in_flight=_of(self.in_flight, subtasks),
            watermarks=_of(self.watermarks, subtasks),
            splits=_of(self.splits, subtasks),
        )


def _of(known: Mapping[SubtaskId, T], subtasks: Collection[SubtaskId]) -> dict[SubtaskId, T]:
    return {id: known[id] for id in subtasks if id in known}
