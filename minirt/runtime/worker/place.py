"""Who a worker is."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.runtime.channels.network import Address, Network


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Who a worker is and how it finds its coordinator."""

    generation: int
    worker: int
    coordinator: Address
    network: Network
    life: int = 0
    """How often it has come back."""

    @property
    def name(self) -> str:
        """That of the socket at which it listens."""
        again = f"-{self.life}" if self.life else ""
        return f"w{self.generation}-{self.worker}{again}"
