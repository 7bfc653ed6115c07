"""The channels of a worker process: sockets to other workers, and links among its own subtasks."""

from __future__ import annotations

import selectors
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from minirt.config import Limits
from minirt.graph.execution import ExecutionGraph
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.network import Network, Socket
from minirt.runtime.channels.sockets import SocketReceiver, SocketSender
from minirt.runtime.channels.tls import has_pending
from minirt.runtime.control.messages import Assignment
from minirt.runtime.subtask.assembly import Assembled
from minirt.runtime.subtask.local_channel import LocalChannel
from minirt.runtime.subtask.subtask import Subtask
from minirt.runtime.worker.rendezvous import Rendezvous

_RECEIVE_BYTES = 256 * 1024


class Wiring:
    """Moves the frames of one worker. Its sockets are in the selector of the worker's loop.

    `network` and `generation` prove to other workers who is calling.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        limits: Limits,
        network: Network,
        generation: int,
        monotonic: Callable[[], float],
    ) -> None:
        self._selector = selector
        self._limits = limits
        self._network = network
        self._generation = generation
        self._monotonic = monotonic
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._local_channels: list[LocalChannel] = []
        self._woken: set[SocketSender] = set()
        self._blocked_senders: set[SocketSender] = set()
        self._upstream: defaultdict[SubtaskId, list[SocketReceiver]] = defaultdict(list)

    # Start.

    def connect(
        self,
        worker: int,
        graph: ExecutionGraph,
        built: Mapping[SubtaskId, Assembled],
        assignment: Assignment,
        listener: socket.socket,
    ) -> None:
        """Open all channels of the subtasks that `worker` hosts. Raises WorkerLostError."""
        inputs: dict[ChannelId, tuple[Subtask, int, InputChannel]] = {
            id: (assembled.subtask, index, end)
            for assembled in built.values()
            for id, (index, end) in assembled.inputs.items()
        }
        rendezvous = Rendezvous(listener, self._network, self._generation)
        away: dict[ChannelId, OutputChannel] = {}
        for assembled in built.values():
            for id, output in assembled.outputs.items():
                target = SubtaskId(graph.links[id.link].target, id.receiver)
                host = assignment.placement[target]
                if host == worker:
                    subtask, index, end = inputs.pop(id)
                    self._local_channels.append(LocalChannel(output, end, subtask, index))
                else:
                    away[id] = output
                    rendezvous.call(id, assignment.addresses[host])
        opened, accepted = rendezvous.meet(inputs.keys(), self._limits.connect_timeout_s)
        for id, sock in opened.items():
            self._open_sender(sock, away[id])
        for id, sock in accepted.items():
            self._open_receiver(sock, *inputs[id])

    def _open_sender(self, sock: Socket, output: OutputChannel) -> None:
        sender = SocketSender(sock, output, self._monotonic)
        output.wake = lambda: self._woken.add(sender)
        self._selector.register(sock, selectors.EVENT_READ, sender)

    def _open_receiver(
        self, sock: Socket, subtask: Subtask, index: int, channel: InputChannel
    ) -> None:
        receiver = SocketReceiver(
            sock,
            channel,
            lambda frame: subtask.on_frame(index, frame),
            self._limits.frame_bytes_max,
            self._on_stuck_credit,
            self._monotonic,
        )
        self._upstream[subtask.id].append(receiver)
        self._selector.register(sock, selectors.EVENT_READ, receiver)
        if has_pending(sock):  # The sender's first frames came with its hello.
            self._on_receiver(self._selector.get_key(sock), receiver, selectors.EVENT_READ)

    # The loop.

    def on_ready(self, key: selectors.SelectorKey, mask: int) -> None:
        """A socket of a channel can be read or written."""
        if isinstance(key.data, SocketReceiver):
            self._on_receiver(key, key.data, mask)
        else:
            self._on_sender(key, key.data, mask)

    def move_frames(self, working: Collection[Subtask]) -> None:
        """Send whatever credit and sockets take.

        Nothing is delivered to the `working` subtasks: inside a record they could not handle a barrier.
        """
        moved = True
        while moved:
            moved = False
            for channel in self._local_channels:
                if channel.receiver not in working:
                    moved |= channel.move()
        woken, self._woken = self._woken, set()
        for sender in woken:
            self._send(sender)

    @contextmanager
    def upstream_paused(self, ids: Collection[SubtaskId], *others: int) -> Iterator[None]:
        """Leave alone what would feed these subtasks, and `others`, by their file descriptors."""
        sockets = [receiver.sock for id in ids for receiver in self._upstream[id]]
        keys = self._selector.get_map()
        feeding = [*(sock.fileno() for sock in sockets), *others]
        paused = [keys[descriptor] for descriptor in feeding if descriptor in keys]
        for key in paused:
            self._selector.unregister(key.fileobj)
        try:
            yield
        finally:
            for key in paused:
                self._selector.register(key.fileobj, key.events, key.data)

    def _on_receiver(self, key: selectors.SelectorKey, receiver: SocketReceiver, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and not receiver.flush_credit():
                self._selector.modify(receiver.sock, selectors.EVENT_READ, receiver)
            alive = receiver.on_readable(self._buffer) if mask & selectors.EVENT_READ else True
            while alive and has_pending(receiver.sock):
                alive = receiver.on_readable(self._buffer)
        except ConnectionError:
            alive = False
        if not alive:
            self._selector.unregister(key.fileobj)

    def _on_stuck_credit(self, receiver: SocketReceiver) -> None:
        """The sender does not read: send the rest when it does."""
        if receiver.sock in self._selector.get_map():
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(receiver.sock, events, receiver)

    def _on_sender(self, key: selectors.SelectorKey, sender: SocketSender, mask: int) -> None:
        try:
            alive = sender.on_readable() if mask & selectors.EVENT_READ else True
            while alive and has_pending(sender.sock):
                alive = sender.on_readable()
        except ConnectionError:
            alive = False
        if not alive:
            self._blocked_senders.discard(sender)
            self._selector.unregister(key.fileobj)
            return
        self._woken.add(sender)

    def _send(self, sender: SocketSender) -> None:
        try:
            blocked = sender.send()
        except ConnectionError:
            return  # The receiver's worker died: the coordinator knows, and will end this one too.
        if blocked != (sender in self._blocked_senders):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if blocked else 0)
            self._selector.modify(sender.sock, events, sender)
            (self._blocked_senders.add if blocked else self._blocked_senders.discard)(sender)
