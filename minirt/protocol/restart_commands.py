"""What the coordinator orders, hears, and tells those who watch, when workers are started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.lines import LocalCut
from minirt.protocol.reasons import GenerationFailure
from minirt.protocol.starting_point import StartingPoint
from minirt.protocol.stored_watermarks import SubtaskWatermarks


@dataclass(frozen=True, slots=True)
class FallenBack:
    """The local snapshot that a subtask goes on from while all others run.

    `life` is how often its worker has come back. `had` says, by channel that goes out, how many elements
    its receivers have had: what lies between its snapshot and there it does again, for nobody.
    """

    life: int
    cut: LocalCut
    watermarks: SubtaskWatermarks
    had: tuple[tuple[ChannelId, int], ...] = ()

    @property
    def is_behind(self) -> bool:
        """Whether it does again what somebody has seen."""
        had = dict(self.had)
        return any(sent < had[channel] for channel, sent in self.cut.sent)


# What is heard of them


@dataclass(frozen=True, slots=True)
class ElementsHad:
    """By channel, how many elements another worker has had from `worker`, which is gone."""

    generation: int
    worker: int
    elements: Mapping[ChannelId, int]


@dataclass(frozen=True, slots=True)
class SubtaskCaughtUp:
    """A subtask that has come back has done again all that others have seen of it."""

    generation: int
    subtask: SubtaskId


RestartEvent = ElementsHad | SubtaskCaughtUp


# What is ordered


@dataclass(frozen=True, slots=True)
class KeepFor:
    """A worker is gone and comes back: the others keep what they send to it, and tell in `ElementsHad` what
    they have had from it."""

    generation: int
    worker: int


@dataclass(frozen=True, slots=True)
class BringBack:
    """Start a worker again that is gone, for the `life`-th time, while all others go on.

    `start` is where its state comes from, and `fallen_back` where its subtasks are by that.
    """

    generation: int
    worker: int
    life: int
    start: StartingPoint
    fallen_back: Mapping[SubtaskId, FallenBack]


@dataclass(frozen=True, slots=True)
class AnnounceComeback:
    """Tell whoever watches that a worker comes back in `delay_s` seconds, and the others go on."""

    failure: GenerationFailure
    delay_s: float


@dataclass(frozen=True, slots=True)
class AnnounceRestart:
    """Tell whoever watches that the job restarts in `delay_s` seconds because of a failure."""

    failure: GenerationFailure
    delay_s: float


RestartCommand = KeepFor | BringBack | AnnounceComeback | AnnounceRestart
