"""What a simulated worker does about another one that is gone and comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.runtime.channels.logged import LoggedOutput
from minirt.runtime.channels.numbered import NumberedInput
from minirt.runtime.control.messages import PeerBack
from minirt.runtime.subtask.assembly import Assembled
from minirt.runtime.subtask.subtask import Subtask


class Ends(Protocol):
    """Where channels begin and end."""

    def sender_of(self, channel: ChannelId) -> int:
        """The worker at the sending end."""

    def receiver_of(self, channel: ChannelId) -> int:
        """The worker at the receiving end."""


class Peers:
    """The channels of one worker to others and from them."""

    def __init__(self, assembled: Mapping[SubtaskId, Assembled], ends: Ends) -> None:
        self._assembled = assembled
        self._ends = ends

    def park(self, peer: int) -> dict[ChannelId, int]:
        """It is gone: keep what is for it. Returns how many elements have come from it."""
        for _, output in self._outputs_to(peer):
            output.park()
        return {id: end.had for id, _, _, end in self._inputs_from(peer)}

    def rejoin(self, back: PeerBack, connect: Callable[[], None]) -> None:
        """It is back: go on with it."""
        for id, output in self._outputs_to(back.worker):
            output.resume(back.processed.get(id, 0))
        inputs = self._inputs_from(back.worker)
        for id, subtask, index, end in inputs:
            subtask.on_sender_back(index, *back.marks[id], end.had)
        connect()
        for _, _, _, end in inputs:
            end.begin_anew()

    def _outputs_to(self, peer: int) -> list[tuple[ChannelId, LoggedOutput]]:
        ends = {id: end for one in self._assembled.values() for id, end in one.outputs.items()}
        return [
            (id, end)
            for id, end in ends.items()
            if isinstance(end, LoggedOutput) and self._ends.receiver_of(id) == peer
        ]

    def _inputs_from(self, peer: int) -> list[tuple[ChannelId, Subtask, int, NumberedInput]]:
        return [
            (id, one.subtask, index, end)
            for one in self._assembled.values()
            for id, (index, end) in one.inputs.items()
            if isinstance(end, NumberedInput) and self._ends.sender_of(id) == peer
        ]
