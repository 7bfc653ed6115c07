"""What coordinator, template and workers tell each other over the control connections."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from minirt import by_value
from minirt.errors import MinirtError
from minirt.monitoring.log_lines import LogLine
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job_events import (
    SnapshotAcknowledged,
    SnapshotDeclined,
    SourceProgressed,
    StopWorkers,
    SubtaskDrained,
    SubtaskStarted,
    WorkerFailed,
)
from minirt.protocol.restart_commands import RestartEvent
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.control.package import Deployment
from minirt.runtime.network.sockets import Address

# To the coordinator


@dataclass(frozen=True, slots=True)
class TemplateReady:
    """The template has loaded the job and can start workers; `threads` are those that loading started."""

    pid: int
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostBeat:
    """A sign of life: the template of another host is there, and so is the coordinator that answers."""


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A forked worker ended; `status` as from `os.waitpid`."""

    generation: int
    worker: int
    status: int
    life: int = 0


@dataclass(frozen=True, slots=True)
class LifelineOpened:
    """This connection only exists so that the worker notices when the coordinator is gone."""


@dataclass(frozen=True, slots=True)
class WorkerHello:
    """A worker is up and can be reached by other workers at `address`."""

    generation: int
    worker: int
    pid: int
    address: Address
    life: int = 0


@dataclass(frozen=True, slots=True)
class WorkerRestored:
    """A worker that has come back has its state, and waits for those that send to it."""

    generation: int
    worker: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker's loop is turning, and these are its figures."""

    generation: int
    worker: int
    metrics: Mapping[SubtaskId, SubtaskMetrics]
    logs: tuple[LogLine, ...] = ()
    """What has been logged since the heartbeat before."""


@dataclass(frozen=True, slots=True)
class FiguresOfCall:
    """The figures of a worker whose loop does not turn: it is within a long call of a user's function."""

    generation: int
    metrics: Mapping[SubtaskId, SubtaskMetrics]


WorkerEvent = (
    SubtaskStarted
    | SubtaskDrained
    | SourceProgressed
    | WorkerFailed
    | RestartEvent
    | SnapshotAcknowledged
    | SnapshotDeclined
)
"""What workers tell the protocol."""


@dataclass(frozen=True, slots=True)
class Together:
    """What several subtasks of a worker have to say, in order: one message costs less than many."""

    events: tuple[WorkerEvent, ...]


@dataclass(frozen=True, slots=True)
class ClockAnswer:
    """What the clock of a worker showed when it read the question of `asked_at`."""

    generation: int
    worker: int
    asked_at: float
    answered_at: float


OfGeneration = Heartbeat | FiguresOfCall | ClockAnswer | WorkerEvent
"""What workers tell of a generation, which may be over when it is heard."""

ToCoordinator = (
    TemplateReady
    | HostBeat
    | WorkerExited
    | LifelineOpened
    | WorkerHello
    | WorkerRestored
    | Together
    | OfGeneration
)

# From the coordinator


@dataclass(frozen=True, slots=True)
class Fork:
    """Fork a worker; `life` is how often it has come back."""

    generation: int
    worker: int
    life: int = 0


@dataclass(frozen=True, slots=True)
class TakeGraph:
    """Workers that are forked from now on run the job as it is planned in this pickled graph."""

    graph: bytes


@dataclass(frozen=True, slots=True)
class JobOver:
    """The job has ended, and nobody takes it over: agents have no other program to look for.

    Unless it `goes_on` at once, at another parallelism: then agents look for it where it was.
    """

    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class KillGeneration:
    """Kill whatever still runs of a generation."""

    generation: int


class Peers:
    """Which worker hosts which subtask, and where each worker is reached.

    All workers are told the same, so it is packed once for all of them.
    """

    def __init__(
        self, placement: Mapping[SubtaskId, int], addresses: Mapping[int, Address]
    ) -> None:
        self.placement = placement
        self.addresses = addresses
        self._packed = b""

    def __reduce__(self) -> tuple[Callable[[bytes], Peers], tuple[bytes]]:
        if not self._packed:
            self._packed = pickle.dumps((dict(self.placement), dict(self.addresses)))
        return (_unpacked, (self._packed,))


def _unpacked(packed: bytes) -> Peers:
    return Peers(*pickle.loads(packed))


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker runs, and where the others are."""

    deployment: Deployment
    peers: Peers


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A command of the protocol to subtasks. `sent_at` is by the clock of the coordinator.

    It tells how old a barrier in it is, whatever the clock of the worker shows.
    """

    command: SubtaskCommand
    sent_at: float


@dataclass(frozen=True, slots=True)
class ClockQuestion:
    """What does the worker's clock show? `asked_at` is by the clock of the coordinator."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class PeerLost:
    """Another worker is gone and comes back: keep what is for it, and say how much has come from it."""

    worker: int


@dataclass(frozen=True, slots=True)
class PeerBack:
    """It is back, at this address, and its subtasks have processed so many records of their channels.

    `marks` says of channels that go out which snapshots they have fallen back to, and how many elements
    lie ahead of these.
    """

    worker: int
    address: Address
    processed: Mapping[ChannelId, int]
    marks: Mapping[ChannelId, tuple[int, int]] = field(default_factory=dict)


ToWorker = Assignment | SentCommand | PeerLost | PeerBack | ClockQuestion | StopWorkers


def portable(error: BaseException) -> Exception:
    """The error itself if it survives a trip between processes, else its text."""
    if isinstance(error, MinirtError):
        try:
            pickle.loads(by_value.dumps(error))
            return error
        except Exception:
            return MinirtError(str(error))
    trace = "".join(traceback.format_exception(error)).rstrip()
    return MinirtError(f"{type(error).__name__}: {error}\n{trace}")
