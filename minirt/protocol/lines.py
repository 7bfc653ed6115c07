"""The recovery line of subtasks that take snapshots each by its own clock: which of them fit together.

Theory of operation. Every subtask numbers its local snapshots from 1. With each it sends its number as a
*mark* into all outputs, so what a subtask sends between two marks is an interval with a number, and a
receiver counts no records. What it has consumed needs, of each sender, the first snapshot whose mark lies
behind all of that. A *cut* is one snapshot of each subtask. It is consistent if each has what it needs:
else there is an *orphan*, which a receiver has consumed and its sender has not sent, as far as their
snapshots know. What lies between the position of a receiver's snapshot and the mark of its sender's is in
transit. It belongs to the cut as a *slice*.

The needs of a subtask only grow, so the consistent cuts have a greatest one, the *line*. Records never
flow in a circle in a job: a receiver may have to fall back because of its sender, but a sender never
because of its receiver. A new snapshot can only move the line forward, and only in its own subtask and in
those behind it.

Source: R. H. B. Netzer and J. Xu, "Necessary and Sufficient Conditions for Consistent Global Snapshots",
1995, of which a graph without circles is the simple case; the rollback of Y. M. Wang, "Consistent Global
Checkpoints that Contain a Given Set of Local Checkpoints", 1997, read from the sources on. Intervals that
are known by a number in the stream: T. H. Lai and T. H. Yang, "On Distributed Snapshots", 1987.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from minirt.errors import ProtocolError
from minirt.protocol.ids import ChannelId, SubtaskId

_AHEAD = 1_000_000
"""More snapshots than can lie ahead of the line: input and output between them are bounded."""


@dataclass(frozen=True, slots=True)
class LocalCut:
    """Where in its streams a subtask has taken a local snapshot.

    `needs` holds, for each subtask that sends to it, the number of the first snapshot that has sent all
    that was consumed. A record counts as consumed once it is processed in part.
    """

    number: int
    needs: tuple[tuple[SubtaskId, int], ...] = ()
    early: bool = False
    """Whether it was taken ahead of its time, as much has come in or gone out."""
    forced: bool = False
    """Whether a mark has forced it: see mode `communication_induced`."""
    processed: tuple[tuple[ChannelId, int], ...] | None = None
    """By channel that comes in, how many of its records were processed; None where nobody counts them, or
    as long as restored ones are left."""
    sent: tuple[tuple[ChannelId, int], ...] = ()
    """By channel that goes out, how many elements lie ahead of it, where somebody numbers them."""
    ended: bool = False
    """Whether the last of them is the end, in all of these channels."""

    @property
    def sent_records(self) -> dict[ChannelId, int]:
        """How many of these elements are records."""
        return {channel: elements - self.ended for channel, elements in self.sent}

    def next_life(self, life: int) -> int:
        """The number behind which life `life` of the subtask counts on when it falls back to this snapshot.

        It is above all numbers that an earlier life gave out, however long that lasted. That may have begun
        up to `_AHEAD` snapshots behind this one, which are not on the line.
        """
        return (self.number // _AHEAD + life + 1) * _AHEAD


class LineTracker:
    """Finds the line of one generation as snapshots become durable, in any order over the subtasks.

    Number 0 stands for what the generation began with. Raises ProtocolError for snapshots that no subtask
    could have taken.
    """

    def __init__(self, subtasks: Collection[SubtaskId]) -> None:
        self._line = {subtask: LocalCut(0) for subtask in subtasks}
        self._ahead: dict[SubtaskId, deque[LocalCut]] = {each: deque() for each in subtasks}
        """Durable snapshots that are not on the line yet, oldest first."""
        self._receivers: dict[SubtaskId, set[SubtaskId]] = {each: set() for each in subtasks}
        """Who needs something of it, as the snapshots say that have come."""

    @property
    def line(self) -> Mapping[SubtaskId, int]:
        """The number of the snapshot of each subtask."""
        return {subtask: cut.number for subtask, cut in self._line.items()}

    def kept(self, subtask: SubtaskId) -> Sequence[int]:
        """The durable snapshots that this line or a later one may need, oldest first. All others may go."""
        return [self._line[subtask].number, *(cut.number for cut in self._ahead[subtask])]

    def add(self, subtask: SubtaskId, cut: LocalCut) -> bool:
        """A snapshot is durable, and no later one of its subtask is. Returns whether the line has moved."""
        before = self._ahead[subtask][-1] if self._ahead[subtask] else self._line[subtask]
        _check(subtask, before, cut)
        for sender, _ in cut.needs:
            self._receivers[sender].add(subtask)
        self._ahead[subtask].append(cut)
        moved, look_at = False, deque([subtask])
        while look_at:
            one = look_at.popleft()
            if self._advance(one):
                moved = True
                look_at.extend(sorted(self._receivers[one]))
        return moved

    def fall_back(self, subtask: SubtaskId) -> None:
        """Forget its snapshots that are not on the line.

        If anybody has consumed what it sent since, it must send all of that again before its next one.
        """
        self._ahead[subtask].clear()

    def _advance(self, subtask: SubtaskId) -> bool:
        """Move one component as far as its senders let it. If a snapshot fits, so do all earlier ones."""
        ahead, moved = self._ahead[subtask], False
        while ahead and all(self._line[s].number >= number for s, number in ahead[0].needs):
            self._line[subtask] = ahead.popleft()
            moved = True
        return moved


def _check(subtask: SubtaskId, before: LocalCut, cut: LocalCut) -> None:
    if cut.number <= before.number:
        raise ProtocolError(f"{subtask} has stored snapshot {cut.number} behind {before.number}")
    earlier, now = dict(before.needs), dict(cut.needs)
    if before.number and earlier.keys() != now.keys():
        raise ProtocolError(
            f"snapshot {cut.number} of {subtask} has other senders than earlier ones"
        )
    if any(now[sender] < number for sender, number in earlier.items()):
        raise ProtocolError(
            f"snapshot {cut.number} of {subtask} has consumed less than an earlier one"
        )
