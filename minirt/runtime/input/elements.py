"""Elements: a subtask takes them from its input one at a time, be that channels or a source."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.data.batch import Batch
from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.latency_marker import LatencyMarker


@dataclass(frozen=True, slots=True)
class Origin:
    """A channel as its receiver sees it: the key of the link, and the sending subtask.

    `recoveries` counts the restores since the records were sent: 0 for what this generation has sent.
    """

    link: str
    sender: int
    recoveries: int = 0


MANY_CHANNELS = Origin("", 0)
"""The origin of a batch that was gathered from several channels: its input knows which records came from
where."""


@dataclass(frozen=True, slots=True)
class Data:
    """Records for one input of an operator; `origin` is the channel that they came through.

    `place` is that of the operator in the vertex: the first one, unless they were on their way to
    another when a checkpoint was taken. Records at the place of a source are those that it has read.
    """

    batch: Batch
    input_index: int
    origin: Origin | None = None
    place: int = 0


@dataclass(frozen=True, slots=True)
class Advance:
    """Event time has advanced to `watermark`, or the input has become idle or active again."""

    watermark: int | None
    idle: bool | None


@dataclass(frozen=True, slots=True)
class Reached:
    """Everything ahead of this barrier in its channel has been consumed."""

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come through this channel; the others go on."""

    channel: int


@dataclass(frozen=True, slots=True)
class End:
    """No more records will come; checkpoints still may."""


@dataclass(frozen=True, slots=True)
class Due:
    """The operator at this place of the vertex does what is due, as it did in an earlier life."""

    place: int


Element = Data | Advance | Reached | Ended | End | Due | LatencyMarker
