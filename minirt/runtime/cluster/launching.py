"""What a cluster asks of whoever starts the templates of its hosts: a launcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from minirt.runtime.control.host_hello import HostHello, HostWelcome
from minirt.runtime.control.package import JobPackage
from minirt.runtime.network.sockets import Address, Network


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """Why no templates will come; `fatal` if another attempt would end in the same way."""

    error: Exception
    fatal: bool


class Launcher(Protocol):
    """Has templates started that come to the coordinator by themselves, and ends them with the job."""

    def failure(self) -> LaunchFailed | None:
        """Of those that should have come, once that is known; it starts others if it can."""

    def on_lost(self) -> str:
        """The connection of a template is gone: start another one if nobody else does so. How it ended."""

    def welcome(self, said: dict[str, Any]) -> tuple[HostHello, HostWelcome]:
        """What a host that comes is told. Raises ConfigurationError if it cannot serve the job."""

    def prove(self, welcome: HostWelcome) -> None:
        """Raises MinirtError unless the host's answer is in the job's storage. May take long."""

    @property
    def advice(self) -> str:
        """What to do if too few hosts come."""

    def close(self, *, orderly: bool) -> None:
        """End what is left. `orderly`: templates were up, and end by themselves without connections."""


class Launch(Protocol):
    """How a job gets its hosts: plain data, before anything is started."""

    @property
    def wait_s(self) -> float | None:
        """How long a deployment waits for hosts; None for as long as workers may take to connect."""

    @property
    def slots_min(self) -> int | None:
        """How many slots are enough after that time; None: all that the job needs."""

    @property
    def follows_slots(self) -> bool:
        """Whether the parallelism of the job follows the slots there are."""

    def network(self, token: bytes, folder: str, transport: str) -> tuple[Network, int]:
        """What the coordinator listens on, and at which port, 0 for any."""

    def start(
        self, package: JobPackage, network: Network, address: Address, slots: int
    ) -> Launcher:
        """Begin to start templates for a job whose coordinator listens at `address`."""
