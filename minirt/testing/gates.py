"""What a simulation does to processes at their operations on storage: each is a `storage.Gate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minirt.testing.faults import Chaos, InjectedFaultError, ProcessDiedError

if TYPE_CHECKING:
    from minirt.testing.coordinator import SimulatedCoordinator, Surroundings


class WorkerGate:
    """What a worker's storage does to it."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos

    def unexpected(self, action: str) -> None:
        error = self._chaos.unexpected_error(action)
        if error is not None:
            raise error

    def before(self, action: str) -> None:
        if self._chaos.strikes_operation("worker_crashes"):
            raise ProcessDiedError
        if self._chaos.strikes_operation("storage_errors"):
            raise InjectedFaultError(f"cannot {action}")

    def after(self, action: str) -> None:
        if self._chaos.strikes_operation("worker_crashes"):
            raise ProcessDiedError
        if self._chaos.strikes_operation("storage_errors"):
            raise InjectedFaultError(f"no answer to: {action}")


class CoordinatorGate:
    """Lets the world go on between any two operations of a coordinator."""

    def __init__(self, coordinator: SimulatedCoordinator, surroundings: Surroundings) -> None:
        self._coordinator = coordinator
        self._surroundings = surroundings

    def unexpected(self, action: str) -> None:
        error = self._surroundings.chaos.unexpected_error(action)
        if error is not None:
            raise error

    def before(self, action: str) -> None:
        self._surroundings.interleave(self._coordinator)
        self._perhaps_die()
        self._surroundings.schedule.note(self._coordinator.name, action)
        if self._surroundings.chaos.strikes_operation("storage_errors"):
            raise InjectedFaultError(f"cannot {action}")

    def after(self, action: str) -> None:
        self._perhaps_die()
        if self._surroundings.chaos.strikes_operation("storage_errors"):
            raise InjectedFaultError(f"no answer to: {action}")

    def _perhaps_die(self) -> None:
        struck = not self._coordinator.replaced and self._surroundings.chaos.strikes_operation(
            "coordinator_crashes"
        )
        if self._coordinator.dead or struck:
            raise ProcessDiedError
