"""Epoch: aligned, and sources wait behind their barrier until the checkpoint is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.modes.aligned import Blocking
from minirt.units import positive


@dataclass(frozen=True)
class Epoch(Blocking):
    """Exactly once: the stream is cut into epochs, and one is stored before the next one is read.

    Nothing is in flight at the end of an epoch. The price: sources stand still while what they have
    read is processed and stored. With a larger group they do so only at the last checkpoint of each
    group, and the others are aligned. Channels are blocked also where all sources wait: timers of an
    operator may emit behind its barrier. Raises ConfigurationError for a group that is no positive number.

    Source: the micro-batches of Zaharia et al., "Discretized Streams", 2013, and the groups of them of
    Venkataraman et al., "Drizzle: Fast and Adaptable Stream Processing at Scale", 2017.
    """

    group: int = 1
    """Sources wait at each checkpoint whose id is a multiple of it."""

    name: ClassVar[str] = "epoch"

    def __post_init__(self) -> None:
        positive(f"{self.name}: group", self.group)

    def holds_sources(self, checkpoint_id: int) -> bool:
        """By the id, which grows over restarts: so a mode need not remember earlier checkpoints."""
        return checkpoint_id % self.group == 0
