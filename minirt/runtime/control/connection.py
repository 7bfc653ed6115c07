"""A control connection: whole messages both ways over a stream socket, as their length and their pickle."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

from minirt.errors import ConfigurationError, MinirtError
from minirt.runtime.control.handshake import call
from minirt.runtime.control.packing import packed
from minirt.runtime.network.sockets import Address, Network, Socket, connected
from minirt.runtime.network.tls import has_pending

_LENGTH = struct.Struct("<Q")
_RECEIVE_BYTES = 64 * 1024
_READS_MAX = 64
"""How often `arrived` reads: an end that sends without a pause must not keep the other from all else."""
_HANDSHAKE_S_MAX = 5.0


class UnsendableError(ConfigurationError):
    """A message holds what no other process can be given."""


class UnreadableError(MinirtError):
    """A message came that cannot be turned into objects here."""


class MessageConnection:
    """One end. The other end has proved that it knows the token: what it sends is unpickled."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._received = bytearray()

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    def fileno(self) -> int:
        """Readable when something has arrived."""
        return self._sock.fileno()

    @property
    def own_address(self) -> str:
        """The address of this host from which the other one is reached; not for Unix sockets."""
        return str(self._sock.getsockname()[0])

    def close(self) -> None:
        self._sock.close()

    @staticmethod
    def sealed(message: object) -> bytes:
        """A message as it is sent, to one or to several. Raises UnsendableError."""
        try:
            data = packed(message)
        except Exception as error:  # Objects that refuse raise whatever they like.
            raise UnsendableError(
                f"it cannot be sent to another process ({type(error).__name__}: {error})"
            ) from error
        return _LENGTH.pack(len(data)) + data

    def send(self, message: object) -> None:
        """Raises UnsendableError before anything is sent, OSError if the other end is gone or stuck."""
        self.send_sealed(self.sealed(message))

    def send_sealed(self, message: bytes) -> None:
        """Send what `sealed` has made. Raises OSError likewise."""
        self._sock.sendall(message)

    def receive(self) -> Any:
        """The next message, waiting for it. Raises EOFError or OSError if the other end is gone."""
        while (message := self._next()) is None:
            self._take(self._sock.recv(min(_RECEIVE_BYTES, self._missing)))
        return _loaded(message)

    def arrived(self) -> list[Any]:
        """The messages that are here in whole. Waits for nothing: an end may freeze in the middle of one.

        Raises EOFError or OSError if the other end is gone and nothing is left of it.
        """
        try:
            reads_left, full = _READS_MAX, True
            while full and reads_left:
                data = self._sock.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
                self._take(data)
                reads_left, full = reads_left - 1, len(data) == _RECEIVE_BYTES
            while has_pending(self._sock):
                self._take(self._sock.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        except (EOFError, OSError):
            if self._missing:
                raise
        messages = []
        while (message := self._next()) is not None:
            messages.append(_loaded(message))
        return messages

    def _take(self, data: bytes) -> None:
        if not data:
            raise EOFError
        self._received += data

    @property
    def _end(self) -> int:
        """Where the first message ends; before its length is known, where that ends."""
        if len(self._received) < _LENGTH.size:
            return _LENGTH.size
        length: int = _LENGTH.unpack_from(self._received)[0]
        return _LENGTH.size + length

    @property
    def _missing(self) -> int:
        """How many bytes must still come, as far as is known; none if the first message is whole."""
        return max(0, self._end - len(self._received))

    def _next(self) -> bytes | None:
        if self._missing:
            return None
        end = self._end
        message = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return message


def connect_to(address: Address, network: Network) -> MessageConnection:
    """A connection to the coordinator. Raises OSError if it is gone, WorkerLostError for a stranger."""
    sock = connected(address, _HANDSHAKE_S_MAX, network.certificate)
    try:
        call(sock, network.token, _HANDSHAKE_S_MAX)
    except BaseException:
        sock.close()
        raise
    return MessageConnection(sock)


def _loaded(message: bytes) -> Any:
    try:
        return pickle.loads(message)
    except Exception as error:
        raise UnreadableError(
            f"a message cannot be read: {type(error).__name__}: {error}"
        ) from error
