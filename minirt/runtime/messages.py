"""What coordinator, template and workers tell each other over the control connections."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from minirt.errors import MinirtError
from minirt.graph.execution import SubtaskId
from minirt.protocol.barriers import Barrier
from minirt.protocol.job_events import JobEvent
from minirt.runtime.assembly import Deployment
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.sockets import Address

# To the coordinator


@dataclass(frozen=True, slots=True)
class TemplateReady:
    """The template has loaded the job and can fork."""

    pid: int


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A forked worker ended; `status` as from `os.waitpid`."""

    generation: int
    worker: int
    status: int


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


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker's loop is turning, and these are its figures."""

    generation: int
    worker: int
    metrics: Mapping[SubtaskId, SubtaskMetrics]


ToCoordinator = TemplateReady | WorkerExited | LifelineOpened | WorkerHello | Heartbeat | JobEvent

# From the coordinator


@dataclass(frozen=True, slots=True)
class Fork:
    """Fork a worker."""

    generation: int
    worker: int


@dataclass(frozen=True, slots=True)
class KillGeneration:
    """Kill whatever still runs of a generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker runs, and where each worker is reached."""

    deployment: Deployment
    placement: Mapping[SubtaskId, int]
    addresses: Mapping[int, Address]


@dataclass(frozen=True, slots=True)
class Trigger:
    """A checkpoint starts; with `pause` the sources emit nothing behind it."""

    barrier: Barrier
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """Paused sources go on."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Sources end now."""


@dataclass(frozen=True, slots=True)
class Abort:
    """A checkpoint is given up."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Close in an orderly way and end."""


SourceMessage = Trigger | Resume | Drain
"""What only workers with sources need to hear."""

ToWorker = Assignment | SourceMessage | Abort | Stop


def portable(error: BaseException) -> Exception:
    """The error itself if it survives a trip between processes, else its text."""
    if isinstance(error, MinirtError):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            return MinirtError(str(error))
    return MinirtError("".join(traceback.format_exception(error)).rstrip())
