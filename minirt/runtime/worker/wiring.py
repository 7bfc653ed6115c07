"""The channels of a worker process: trunks to other workers, and links among its own subtasks."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from minirt.config import Limits
from minirt.errors import ProtocolError, WorkerLostError
from minirt.graph.execution import ExecutionGraph
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.restart_commands import ElementsHad
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.logged import LoggedOutput
from minirt.runtime.channels.numbered import NumberedInput
from minirt.runtime.control.messages import Assignment, PeerBack
from minirt.runtime.network.sockets import Network, Socket
from minirt.runtime.network.tls import has_pending
from minirt.runtime.network.trunks import TrunkReceiver, TrunkSender
from minirt.runtime.subtask.assembly import Assembled
from minirt.runtime.subtask.local_channel import LocalChannel
from minirt.runtime.subtask.subtask import Subtask
from minirt.runtime.worker.arrivals import Arrivals
from minirt.runtime.worker.place import WorkerPlace
from minirt.runtime.worker.rendezvous import Rendezvous

_RECEIVE_BYTES = 256 * 1024
_ALONE_S_MAX = 10.0
"""How long a worker waits, without another one, for the coordinator to end it."""

End = TypeVar("End")

Incoming = tuple[Subtask, int, InputChannel]
"""The receiving end of a channel, and its place in the gate of its subtask."""


class Wiring:
    """Moves the frames of one worker. Its trunks are in the selector of the worker's loop.

    Nothing is delivered to the `working` subtasks: inside a record they could not handle a barrier.
    `network` and `generation` prove to other workers who is calling.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        limits: Limits,
        network: Network,
        generation: int,
        monotonic: Callable[[], float],
        working: Collection[Subtask],
    ) -> None:
        self._selector = selector
        self._limits = limits
        self._network = network
        self._generation = generation
        self._monotonic = monotonic
        self._working = working
        self._worker = 0
        self._lost_at: float | None = None
        """When the first trunk was found closed: its other end is gone, or cannot be reached."""
        self._arrivals = Arrivals(working)
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._local_ready: deque[LocalChannel] = deque()
        """Channels within the worker that may have something to move, each once."""
        self._woken: set[TrunkSender] = set()
        self._blocked_senders: set[TrunkSender] = set()
        self._senders: dict[int, TrunkSender] = {}
        """By the worker at the other end."""
        self._outgoing: dict[int, Mapping[ChannelId, OutputChannel]] = {}
        """Likewise, the channels of each trunk."""
        self._receivers: dict[int, TrunkReceiver] = {}
        self._incoming: dict[int, Mapping[ChannelId, Incoming]] = {}

    # Start.

    def connect(
        self,
        place: WorkerPlace,
        graph: ExecutionGraph,
        built: Mapping[SubtaskId, Assembled],
        assignment: Assignment,
        listener: socket.socket,
    ) -> None:
        """Open all channels of the subtasks of this worker. Raises WorkerLostError.

        One that has come back is called by all others, which have been up for long.
        """
        self._worker = worker = place.worker
        inputs: dict[ChannelId, Incoming] = {
            id: (assembled.subtask, index, end)
            for assembled in built.values()
            for id, (index, end) in assembled.inputs.items()
        }
        outgoing: defaultdict[int, dict[ChannelId, OutputChannel]] = defaultdict(dict)
        for assembled in built.values():
            for id, output in assembled.outputs.items():
                host = assignment.peers.placement[
                    SubtaskId(graph.links[id.link].target, id.receiver)
                ]
                if host == worker:
                    self._open_local(output, *inputs.pop(id))
                else:
                    outgoing[host][id] = output
        incoming: defaultdict[int, dict[ChannelId, Incoming]] = defaultdict(dict)
        for id, end in inputs.items():
            host = assignment.peers.placement[SubtaskId(graph.links[id.link].source, id.sender)]
            incoming[host][id] = end
        rendezvous = Rendezvous(listener, self._network, self._generation, worker)
        for host in () if place.life else outgoing:
            rendezvous.call(host, assignment.peers.addresses[host])
        opened, accepted = rendezvous.meet(
            incoming.keys(), self._limits.connect_timeout_s, outgoing if place.life else ()
        )
        self._outgoing, self._incoming = dict(outgoing), dict(incoming)
        for host, sock in opened.items():
            self._open_sender(host, sock)
        for host, sock in accepted.items():
            self._open_receiver(host, sock)

    def _open_local(
        self, output: OutputChannel, to: Subtask, index: int, input: InputChannel
    ) -> None:
        channel = LocalChannel(output, input, to, index)
        output.wake = partial(self._wake_local, channel)
        self._wake_local(channel)

    def _open_sender(self, host: int, sock: Socket) -> None:
        channels = _in_order(self._outgoing[host])
        compress = self._network.compresses(sock)
        sender = TrunkSender(sock, channels, self._woken.add, self._monotonic, compress)
        self._senders[host] = sender
        self._selector.register(sock, selectors.EVENT_READ, sender)

    def _open_receiver(self, host: int, sock: Socket) -> None:
        ends, deliver = _in_order(self._incoming[host]), self._arrivals.deliver

        def take(number: int, frame: Frame) -> None:
            subtask, index, _ = ends[number]
            deliver(subtask, index, frame)

        receiver = TrunkReceiver(
            sock,
            [channel for _, _, channel in ends],
            take,
            self._limits.frame_bytes_max,
            self._on_stuck_credit,
            self._monotonic,
        )
        self._receivers[host] = receiver
        self._selector.register(sock, selectors.EVENT_READ, receiver)
        if has_pending(sock):  # The sender's first frames came with its hello.
            self._on_receiver(self._selector.get_key(sock), receiver, selectors.EVENT_READ)

    # Another worker goes and comes back.

    def park(self, host: int) -> ElementsHad:
        """A worker is gone that comes back: keep what there is for it. Returns what has come from it."""
        self._lost_at = None
        sender = self._senders.pop(host, None)
        if sender is not None:
            for channel in self._outgoing[host].values():
                if not isinstance(channel, LoggedOutput):
                    raise ProtocolError(
                        f"worker {host} cannot come back: nobody keeps what was sent"
                    )
                channel.park()
            self._close(sender)
            self._woken.discard(sender)
            self._blocked_senders.discard(sender)
        receiver = self._receivers.pop(host, None)
        if receiver is not None:
            with contextlib.suppress(OSError):  # It may be closed already.
                receiver.on_readable(self._buffer)
            self._close(receiver)
        self._arrivals.release()
        ends = self._incoming.get(host, {})
        had = {id: end.had for id, (_, _, end) in ends.items() if isinstance(end, NumberedInput)}
        return ElementsHad(self._generation, host, had)

    def _close(self, end: TrunkSender | TrunkReceiver) -> None:
        if end.sock in self._selector.get_map():
            self._selector.unregister(end.sock)
        end.sock.close()

    def rejoin(self, back: PeerBack) -> None:
        """It is back: send it what follows the records that it has processed, and take what it sends.

        Raises WorkerLostError.
        """
        host = back.worker
        rendezvous = Rendezvous(None, self._network, self._generation, self._worker)
        if host in self._outgoing:
            rendezvous.call(host, back.address)
        if host in self._incoming:
            rendezvous.call(host, back.address, receives=True)
        opened, accepted = rendezvous.meet((), self._limits.connect_timeout_s)
        if host in self._outgoing:
            for id, channel in self._outgoing[host].items():
                assert isinstance(channel, LoggedOutput)
                channel.resume(back.processed.get(id, 0))
            self._open_sender(host, opened[host])
        if host in self._incoming:
            ends = self._incoming[host]
            for id, (subtask, index, end) in ends.items():
                assert isinstance(end, NumberedInput)
                subtask.on_sender_back(index, *back.marks[id], end.had)
            self._open_receiver(host, accepted[host])
            for _, _, end in ends.values():
                assert isinstance(end, NumberedInput)
                end.begin_anew()

    # The loop.

    def on_ready(self, key: selectors.SelectorKey, mask: int) -> None:
        """A trunk can be read or written."""
        if isinstance(key.data, TrunkReceiver):
            self._on_receiver(key, key.data, mask)
        else:
            self._on_sender(key, key.data, mask)

    def check_trunks(self) -> None:
        """Raises WorkerLostError if a trunk is closed, and the coordinator goes on all the same.

        When a worker is gone, the coordinator ends the others. Where both live and cannot reach each other,
        it hears of that from nobody else.
        """
        if self._lost_at is not None and self._monotonic() - self._lost_at > _ALONE_S_MAX:
            raise WorkerLostError("a connection to another worker is closed")

    def move_frames(self) -> None:
        """Deliver what waits for subtasks that do not work; send whatever credit and sockets take."""
        self._arrivals.release()
        self._move_local()
        woken = list(self._woken)
        self._woken.clear()
        for sender in woken:
            self._send(sender)

    def _move_local(self) -> None:
        held: list[LocalChannel] = []
        ready = self._local_ready
        while ready:
            channel = ready.popleft()
            if channel.receiver in self._working:
                held.append(channel)
                continue
            channel.is_ready = False
            if channel.move():
                self._wake_local(channel)
        ready.extend(held)

    def _wake_local(self, channel: LocalChannel) -> None:
        if not channel.is_ready:
            channel.is_ready = True
            self._local_ready.append(channel)

    def _on_receiver(self, key: selectors.SelectorKey, receiver: TrunkReceiver, mask: int) -> None:
        if receiver.sock.fileno() < 0:
            return  # It was parked since the loop has looked who is ready.
        try:
            if mask & selectors.EVENT_WRITE and not receiver.flush_credit():
                self._selector.modify(receiver.sock, selectors.EVENT_READ, receiver)
            alive = receiver.on_readable(self._buffer) if mask & selectors.EVENT_READ else True
            while alive and has_pending(receiver.sock):
                alive = receiver.on_readable(self._buffer)
        except ConnectionError:
            alive = False
        if not alive:
            self._lose(key)

    def _on_stuck_credit(self, receiver: TrunkReceiver) -> None:
        """The sender does not read: send the rest when it does."""
        if receiver.sock in self._selector.get_map():
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(receiver.sock, events, receiver)

    def _on_sender(self, key: selectors.SelectorKey, sender: TrunkSender, mask: int) -> None:
        if sender.sock.fileno() < 0:
            return  # It was parked since the loop has looked who is ready.
        try:
            alive = sender.on_readable() if mask & selectors.EVENT_READ else True
            while alive and has_pending(sender.sock):
                alive = sender.on_readable()
        except ConnectionError:
            alive = False
        if not alive:
            self._blocked_senders.discard(sender)
            self._lose(key)
            return
        self._woken.add(sender)

    def _lose(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        if self._lost_at is None:
            self._lost_at = self._monotonic()

    def _send(self, sender: TrunkSender) -> None:
        try:
            blocked = sender.send()
        except ConnectionError:
            return  # As will show where it is read.
        if blocked != (sender in self._blocked_senders):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if blocked else 0)
            self._selector.modify(sender.sock, events, sender)
            (self._blocked_senders.add if blocked else self._blocked_senders.discard)(sender)


def _in_order(ends: Mapping[ChannelId, End]) -> list[End]:
    """The channels of a trunk, as both its ends count them."""
    return [ends[id] for id in sorted(ends)]
