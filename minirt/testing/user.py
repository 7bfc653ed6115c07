"""The simulated user, who asks for savepoints and starts a job again where it was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from minirt.errors import ConfigurationError
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.job_events import AnswerSavepoint, SavepointRequested
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.deletion import delete, plan_deletion
from minirt.testing.coordinator import SimulatedCoordinator
from minirt.testing.schedule import Schedule
from minirt.testing.storage import Disks, OpenGate, SimulatedStore

_DELETE_STEPS = 30
_ROUNDS = (2, 8, 25)
"""How many rounds lie between two requests on average; a simulation draws one of them."""


@dataclass(frozen=True, slots=True)
class Requests:
    """How many savepoints are asked for at most, in any order; the seed draws the real numbers.

    Each is copied. A job that was stopped or drained is started again from the copy, in an empty storage,
    perhaps in another form. Drain only jobs whose operators do not mind that event time ends early.
    `deletes` are checkpoints that another process deletes by force: output may come twice.
    """

    savepoints: int = 0
    stops: int = 0
    drains: int = 0
    deletes: int = 0


class SimulatedUser:
    """Asks when the seed says so, and remembers what is still to be answered."""

    def __init__(
        self,
        requests: Requests,
        modes: Mapping[str, CheckpointMode],
        default_mode: CheckpointMode,
        schedule: Schedule,
        round_steps: int,
    ) -> None:
        self._random: Random = schedule.random
        self._schedule = schedule
        self._modes = sorted(
            name for name, mode in modes.items() if mode.exactly_once or mode is default_mode
        )
        self._wanted: list[Afterwards] = []
        self._deletes = 0
        self._open: dict[tuple[str, int], SavepointRequest] = {}
        self.published: list[Savepoint] = []
        """Every savepoint that was there when it was answered."""
        if requests == Requests():
            return  # Nothing is drawn: seeds stay what they were.
        for afterwards, most in (
            (Afterwards.GO_ON, requests.savepoints),
            (Afterwards.STOP, requests.stops),
            (Afterwards.DRAIN, requests.drains),
        ):
            self._wanted += [afterwards] * self._random.randint(0, most)
        self._random.shuffle(self._wanted)
        self._rate = 1 / (self._random.choice(_ROUNDS) * round_steps)
        self._deletes = requests.deletes

    def perhaps_ask(self, coordinator: SimulatedCoordinator) -> None:
        """To be called once a step."""
        if not self._wanted or self._random.random() >= self._rate:
            return
        id = self._schedule.steps
        path = f"simulated://savepoint-{id}"
        request = SavepointRequest(id, self._random.choice(self._modes), path, self._wanted.pop())
        self._open[coordinator.name, id] = request
        self._schedule.note("user", f"asks {coordinator.name}: {request}")
        coordinator.cluster.to_coordinator("user", SavepointRequested(request))

    def perhaps_delete(self, disks: Disks, url: str) -> None:
        """To be called once a step."""
        if not self._deletes or self._random.random() >= self._rate:
            return
        storage = CheckpointStorage(SimulatedStore(url, disks, OpenGate()), 0)
        keys = storage.manifest_keys()
        if not keys:
            return
        try:
            planned = plan_deletion(storage, self._random.choice(keys), force=True)
        except ConfigurationError:  # Another checkpoint builds on it.
            return
        self._deletes -= 1
        self._schedule.note("user", f"deletes {planned}")
        self._schedule.later(_DELETE_STEPS, lambda: delete(storage, planned))

    def on_answer(self, coordinator: SimulatedCoordinator, answer: AnswerSavepoint) -> None:
        """Raises KeyError if nothing was asked, or it was answered before."""
        del self._open[coordinator.name, answer.request_id]
        self._schedule.note("user", f"hears {answer}")
        if answer.savepoint is not None:
            self.published.append(answer.savepoint)

    def unanswered(self, coordinator: SimulatedCoordinator) -> int:
        """How many requests a coordinator has heard and not answered."""
        asked = sum(name == coordinator.name for name, _ in self._open)
        return asked - len(coordinator.cluster.messages["user"])
