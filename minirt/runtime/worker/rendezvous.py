"""Opens the trunks of a worker to others, while the others open theirs to it.

All workers do so at once, and each handshake needs both sides. So one loop serves all that this worker has
called and all that have called it, and waits for nobody in particular: not for a stranger, nor for a worker
that itself waits for a third one.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Collection
from dataclasses import dataclass

from minirt.errors import WorkerLostError
from minirt.monitoring.logs import logger_of
from minirt.runtime.control.handshake import NONCE_BYTES, REPLY_BYTES, Caller, Listener
from minirt.runtime.network.sockets import Address, Network, Socket, connected

_HELLO = struct.Struct("<QII")
"""Generation, the worker that sends and the one that receives."""
_CONNECT_S_MAX = 5.0
_VISITORS_MAX = 256
"""How many may be examined at a time, besides those that are expected; then the oldest one has to go."""

logger = logger_of("worker")


@dataclass(slots=True)
class _Call:
    """A trunk that this worker opens."""

    worker: int
    address: Address
    receives: bool
    """Whether it is this worker that receives."""
    caller: Caller
    unsent: bytes
    received: bytes = b""
    wanted: int = REPLY_BYTES


@dataclass(slots=True)
class _Visit:
    """Somebody who has called this worker."""

    listener: Listener
    whence: str
    unsent: bytes = b""
    received: bytes = b""
    wanted: int = NONCE_BYTES
    greeted: bool = False


class Rendezvous:
    """`call` the workers that this one sends to, then `meet` them and those that send to it.

    Without a `listener` nobody can call this one. A worker that has come back calls nobody: those that
    receive from it call it as well.
    """

    def __init__(
        self, listener: socket.socket | None, network: Network, generation: int, worker: int
    ) -> None:
        self._listener = listener
        self._network = network
        self._generation = generation
        self._worker = worker
        self._selector = selectors.DefaultSelector()
        self._calls = 0
        """How many have not been answered."""
        self._expected: set[int] = set()
        self._receivers: set[int] = set()
        self._opened: dict[int, Socket] = {}
        self._accepted: dict[int, Socket] = {}
        self._visitors: dict[Socket, _Visit] = {}
        """Those who have called and not yet said who they are, the oldest first."""
        self._has_warned = False

    def call(self, worker: int, address: Address, *, receives: bool = False) -> None:
        """Begin to open a trunk to a worker, or from it if it is this one that `receives`.

        Raises WorkerLostError.
        """
        ends = (worker, self._worker) if receives else (self._worker, worker)
        caller = Caller(self._network.token, _HELLO.pack(self._generation, *ends))
        call = _Call(worker, address, receives, caller, caller.greeting)
        try:
            sock = connected(address, _CONNECT_S_MAX, self._network.certificate)
            sock.setblocking(False)
            _send(sock, call)
        except OSError as error:
            raise _lost(address, error) from error
        self._selector.register(sock, selectors.EVENT_READ, call)
        self._calls += 1

    def meet(
        self, expected: Collection[int], timeout_s: float, receivers: Collection[int] = ()
    ) -> tuple[dict[int, Socket], dict[int, Socket]]:
        """Non-blocking sockets, by worker: to those that this one sends to, and from those that send to it.

        Besides those that were called, these are who is `expected` to send, and `receivers`, which call.

        Raises WorkerLostError if somebody who was called is not a worker of the job, or if it takes longer.
        """
        self._expected, self._receivers = set(expected), set(receivers)
        if self._listener is not None:
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)
        deadline = time.monotonic() + timeout_s
        try:
            while not self._all_are_there:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise WorkerLostError("other workers have not opened their channels")
                for key, _ in self._selector.select(left_s):
                    self._on_ready(key)
        finally:
            self._close_others()
        return self._opened, self._accepted

    @property
    def _all_are_there(self) -> bool:
        known = self._accepted.keys() >= self._expected and self._opened.keys() >= self._receivers
        return known and not self._calls

    def _on_ready(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        assert isinstance(sock, Socket)
        match key.data:
            case _Call() as call:
                self._on_called(sock, call)
            case _Visit() as visit:
                if sock in self._visitors:
                    self._on_visitor(sock, visit)
            case _:
                self._admit()

    def _admit(self) -> None:
        assert self._listener is not None
        try:
            raw, whence = self._listener.accept()
            sock = self._network.accepted(raw)
        except OSError:  # Whoever came has gone again.
            return
        sock.setblocking(False)
        visit = _Visit(Listener(self._network.token, _HELLO.size), str(whence or "this machine"))
        self._selector.register(sock, selectors.EVENT_READ, visit)
        self._visitors[sock] = visit
        if len(self._visitors) > _VISITORS_MAX + len(self._expected) + len(self._receivers):
            self._turn_away(next(iter(self._visitors)))

    def _on_called(self, sock: Socket, call: _Call) -> None:
        try:
            _send(sock, call)
            if not _received(sock, call):
                return
            call.unsent = call.caller.answer(call.received)
            _send(sock, call)
            if call.unsent:
                raise ConnectionError("it takes no answer")
        except (OSError, WorkerLostError) as error:
            raise _lost(call.address, error) from error
        self._selector.unregister(sock)
        self._calls -= 1
        (self._accepted if call.receives else self._opened)[call.worker] = sock

    def _on_visitor(self, sock: Socket, visit: _Visit) -> None:
        try:
            _send(sock, visit)
            if not _received(sock, visit):
                return
            if not visit.greeted:
                visit.unsent = visit.listener.reply(visit.received)
                _send(sock, visit)
                visit.received, visit.greeted = b"", True
                visit.wanted = visit.listener.answer_bytes
                return
        except OSError:
            self._turn_away(sock)
            return
        hello = visit.listener.hello(visit.received)
        if hello is None or not self._greets(sock, *_HELLO.unpack(hello)):
            self._turn_away(sock)
            return
        self._selector.unregister(sock)
        del self._visitors[sock]

    def _greets(self, sock: Socket, generation: int, sender: int, receiver: int) -> bool:
        """Whether one who has come is expected, and not a worker of another generation or on the wrong
        way."""
        if receiver == self._worker:
            other, expected, known = sender, self._expected, self._accepted
        else:
            other, expected, known = receiver, self._receivers, self._opened
        ends = {sender, receiver} == {other, self._worker}
        if not ends or generation != self._generation or other in known or other not in expected:
            return False
        known[other] = sock
        return True

    def _turn_away(self, sock: Socket) -> None:
        visit = self._visitors.pop(sock)
        if not self._has_warned:
            self._has_warned = True
            logger.warning("a stranger was turned away that came from %s", visit.whence)
        self._selector.unregister(sock)
        sock.close()

    def _close_others(self) -> None:
        """Close visitors who did not say what they want, and calls that came to nothing."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                assert isinstance(key.fileobj, Socket)
                key.fileobj.close()
        self._selector.close()


def _send(sock: Socket, side: _Call | _Visit) -> None:
    """What has to be sent, unless a handshake of TLS comes first. Raises OSError."""
    while side.unsent:
        try:
            side.unsent = side.unsent[sock.send(side.unsent) :]
        except BlockingIOError:
            return


def _received(sock: Socket, side: _Call | _Visit) -> bool:
    """Whether all that is wanted has come. Raises OSError if the other side is gone."""
    try:
        part = sock.recv(side.wanted - len(side.received))
    except BlockingIOError:
        return False
    if not part:
        raise ConnectionError("closed")
    side.received += part
    return len(side.received) == side.wanted


def _lost(address: Address, error: Exception) -> WorkerLostError:
    return WorkerLostError(f"no connection to the worker at {address}: {error}")
