"""Who a worker is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minirt.monitoring.log_lines import LogLine
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.runtime.control.messages import Heartbeat
from minirt.runtime.network.sockets import Address, Network


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

    def heartbeat(
        self, figures: Mapping[SubtaskId, SubtaskMetrics], logs: tuple[LogLine, ...] = ()
    ) -> Heartbeat:
        return Heartbeat(self.generation, self.worker, figures, logs)
