"""What coordinator and cluster tell each other about slots."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AwaitSlots:
    """Say once there are `enough` slots, or `least` of them after `patience_s`.

    At the latest that is after the time that the cluster waits.
    """

    enough: int
    least: int
    patience_s: float = math.inf


@dataclass(frozen=True, slots=True)
class SlotsAwaited:
    """That time has come, with so many slots."""

    slots: int


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """Hosts have come or gone: they have so many slots in all."""

    slots: int


@dataclass(frozen=True, slots=True)
class SlotsCame:
    """Subtasks share slots, and there are as many by now as they need."""

    generation: int
