"""Both sides of a connection prove that they know the job's token, and neither one says it.

The caller sends a random number. The listener answers with another one and a proof: a keyed hash of both.
The caller checks it, and only then sends its own proof, over both numbers and what it has come for, its
*hello*. A process that does not know the token learns only random numbers, even if it listens at the
address of a dead worker. A proof says which side made it, so that neither side can send back the other's.
"""

from __future__ import annotations

import hmac
import secrets
import time

from minirt.errors import WorkerLostError
from minirt.runtime.network.sockets import Socket

NONCE_BYTES = 32
PROOF_BYTES = 32
REPLY_BYTES = NONCE_BYTES + PROOF_BYTES


class Caller:
    """The side that has opened the connection: sends `greeting`, and what `answer` gives for the reply."""

    def __init__(self, token: bytes, hello: bytes = b"") -> None:
        self._token = token
        self._hello = hello
        self.greeting = secrets.token_bytes(NONCE_BYTES)

    def answer(self, reply: bytes) -> bytes:
        """What is to be sent; raises WorkerLostError if the listener does not know the token."""
        nonce, proof = reply[:NONCE_BYTES], reply[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._token, b"listener", self.greeting, nonce)):
            raise WorkerLostError("whoever listens there does not know the job's token")
        return _proof(self._token, b"caller", self.greeting, nonce, self._hello) + self._hello


class Listener:
    """The side that was called: sends what `reply` gives for the greeting, and takes the answer."""

    def __init__(self, token: bytes, hello_bytes: int = 0) -> None:
        self._token = token
        self._nonces = (b"", b"")
        self.answer_bytes = PROOF_BYTES + hello_bytes

    def reply(self, greeting: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._nonces = (greeting, nonce)
        return nonce + _proof(self._token, b"listener", greeting, nonce)

    def hello(self, answer: bytes) -> bytes | None:
        """What the caller has come for; None if it does not know the token."""
        proof, hello = answer[:PROOF_BYTES], answer[PROOF_BYTES:]
        known = hmac.compare_digest(proof, _proof(self._token, b"caller", *self._nonces, hello))
        return hello if known else None


def call(sock: Socket, token: bytes, timeout_s: float) -> None:
    """Prove to a listener who is calling, on a blocking socket.

    Raises WorkerLostError if it does not know the token, OSError if it hangs up or takes too long.
    """
    deadline, caller = time.monotonic() + timeout_s, Caller(token)
    sock.settimeout(timeout_s)
    sock.sendall(caller.greeting)
    sock.sendall(caller.answer(_receive(sock, REPLY_BYTES, deadline)))
    sock.settimeout(None)


def welcome(sock: Socket, token: bytes, timeout_s: float) -> bool:
    """Whether the caller on a blocking socket knows the token. Raises OSError as `call` does."""
    deadline, listener = time.monotonic() + timeout_s, Listener(token)
    sock.settimeout(timeout_s)
    sock.sendall(listener.reply(_receive(sock, NONCE_BYTES, deadline)))
    known = listener.hello(_receive(sock, listener.answer_bytes, deadline)) is not None
    sock.settimeout(None)
    return known


def _receive(sock: Socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no handshake in time")
        sock.settimeout(left_s)
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def _proof(token: bytes, whose: bytes, *said: bytes) -> bytes:
    lengths = b"".join(len(part).to_bytes(4, "little") + part for part in said)
    return hmac.digest(token, whose + b"\0" + lengths, "sha256")
