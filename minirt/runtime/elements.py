"""What a subtask takes from its input, one at a time, whether that is channels or a source."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.data.batch import Batch
from minirt.protocol.barriers import Barrier


@dataclass(frozen=True, slots=True)
class Origin:
    """A channel as its receiver sees it: the key of the link, and the sending subtask.

    `recoveries` counts the restores since the records were sent: 0 for what this generation has sent.
    """

    link: str
    sender: int
    recoveries: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """Records for one input of the operator; `origin` is the channel that they came through."""

    batch: Batch
    input_index: int
    origin: Origin | None = None


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
class End:
    """No more records will come; checkpoints still may."""


Element = Data | Advance | Reached | End
