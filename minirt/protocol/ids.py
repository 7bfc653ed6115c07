"""What names the parts of a running job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SubtaskId:
    """A parallel instance of a vertex."""

    vertex: int
    index: int


@dataclass(frozen=True, slots=True, order=True)
class ChannelId:
    """One directed connection: subtask `sender` of the link's source to `receiver` of its target."""

    link: int
    sender: int
    receiver: int
