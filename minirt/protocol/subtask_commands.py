"""What the coordinator orders of subtasks. These commands are also the messages that workers get.

The shell, the clusters and the workers hand every command on without looking at it. So a new one is a class
here, which the protocol returns, and a case in `Subtask.obey`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import ChannelId, SubtaskId


@dataclass(frozen=True, slots=True)
class SubtaskCommand:
    """One command to the subtasks of a generation."""

    generation: int

    to_sources: ClassVar[bool]
    """Whether only subtasks with a source get it; otherwise all do. Each class must say it."""

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "to_sources"):
            raise TypeError(f"{cls.__name__} does not say whether it is only for sources")


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint(SubtaskCommand):
    """Begin a checkpoint with this barrier; with `pause`, emit nothing behind your snapshot."""

    barrier: Barrier
    pause: bool = False

    to_sources = True


@dataclass(frozen=True, slots=True)
class ResumeSources(SubtaskCommand):
    """Go on, if you were paused."""

    to_sources = True


@dataclass(frozen=True, slots=True)
class DrainSources(SubtaskCommand):
    """End now, as if your input were read to the end."""

    to_sources = True


@dataclass(frozen=True, slots=True)
class LimitDrift(SubtaskCommand):
    """Read no split of a source in this drift group whose watermark is above `limit_ms`."""

    group: str
    limit_ms: int

    to_sources = True


@dataclass(frozen=True, slots=True)
class AbortCheckpoint(SubtaskCommand):
    """The checkpoint is given up; so are all older ones, but for those that are `spared`."""

    checkpoint_id: int
    spared: tuple[int, ...] = ()

    to_sources = False


@dataclass(frozen=True, slots=True)
class StoreSlices(SubtaskCommand):
    """A checkpoint is to be made of these local snapshots, by their numbers: store what of your inputs is
    in transit between them. No later line falls back behind them."""

    checkpoint_id: int
    line: Mapping[SubtaskId, int]
    processed: Mapping[ChannelId, int] = field(default_factory=dict)
    """How many records of channels nobody will ask for again."""

    to_sources = False
