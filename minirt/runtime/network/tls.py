"""TLS between the hosts of a job, by a certificate that is made for the job and that everybody pins.

`TlsSocket` has the calls of a socket. Threads may read and write at the same time, which objects of OpenSSL
must not: so it works on buffers in memory, under a lock that is never held while anybody waits.
"""

from __future__ import annotations

import hashlib
import hmac
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

from minirt.errors import ConfigurationError

T = TypeVar("T")

_RECEIVE_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024
"""What is encrypted at a time: so much more than a socket took may wait in memory."""
_LOOK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate as PEM. Whoever listens needs the key as well."""

    certificate: str
    key: str = field(default="", repr=False)

    @classmethod
    def make(cls, secret: bytes | None = None) -> Certificate:
        """A new one; of a secret of 32 bytes, which becomes its key, always the same.

        Raises ConfigurationError if the package `cryptography` is missing.
        """
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        except ImportError as error:
            raise ConfigurationError(
                f"TLS between hosts needs a package ({error}): install it with "
                "`pip install 'minirt[cluster]'`"
            ) from None
        import datetime

        # Signatures of Ed25519 need no random numbers, so that all of the certificate is the same again.
        random = secret is None
        key = (
            ec.generate_private_key(ec.SECP256R1())
            if secret is None
            else ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        )
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "minirt job")])
        # It is valid whatever a host takes the date for: it ends with the job, which alone has its key.
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number() if random else 1)
            .not_valid_before(datetime.datetime(1970, 1, 2))
            .not_valid_after(datetime.datetime(9999, 12, 31))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256() if random else None)
        )
        pem = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        return cls(
            made.public_bytes(pem).decode(),
            key.private_bytes(pem, form, serialization.NoEncryption()).decode(),
        )

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(_digest(ssl.PEM_cert_to_DER_cert(self.certificate)))

    def client(self, sock: socket.socket) -> TlsSocket:
        """The side that has opened a connection to somebody who must show this certificate."""
        return self.fingerprint.client(sock, _client_context(self.certificate))

    def server(self, sock: socket.socket) -> TlsSocket:
        """The side that was called."""
        return TlsSocket(sock, _server_context(self), server=True)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The SHA-256 of a certificate, as hexadecimal digits: enough to know it by."""

    digits: str

    def client(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> TlsSocket:
        """As of the certificate; `context` may check more."""
        context = _client_context(None) if context is None else context
        return TlsSocket(sock, context, server=False, pinned=self.digits)


class WrongCertificateError(ConnectionError):
    """Whoever listens there shows another certificate."""


class TlsSocket:
    """One end. It shakes hands with the other one as soon as something is sent or received.

    As with a non-blocking socket, what `send` has refused with BlockingIOError is to be given again: it may
    be on its way. Raises ConnectionError if the other end shows a wrong certificate, or does not speak TLS.
    """

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, server: bool, pinned: str = ""
    ) -> None:
        self._timeout = sock.gettimeout()
        sock.setblocking(False)
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._pinned = pinned
        self._shaken = False
        self._encrypted = memoryview(b"")
        """What the socket has not taken yet."""
        self._accepted = 0
        """How much of what `send` was given is encrypted, though `send` has not said so yet."""
        self._lock = threading.Lock()
        self.pending = False
        """Whether there may be more to receive although the socket is not readable."""

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockname(self) -> Any:
        return self._sock.getsockname()

    def getpeername(self) -> Any:
        return self._sock.getpeername()

    def close(self) -> None:
        self._sock.close()

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def setblocking(self, blocking: bool) -> None:
        self._timeout = None if blocking else 0.0

    def recv(self, count: int, flags: int = 0) -> bytes:
        """As of a socket; of `flags` it knows MSG_DONTWAIT."""
        timeout = 0.0 if flags & socket.MSG_DONTWAIT else self._timeout
        return self._patiently(lambda: self._read(count), timeout, True)

    def recv_into(self, buffer: memoryview) -> int:
        """Fill the buffer as far as there is anything."""
        return self._patiently(lambda: self._read_into(buffer), self._timeout, True)

    def send(self, data: bytes | memoryview) -> int:
        return self._patiently(lambda: self._write(data), self._timeout, False)

    def sendmsg(self, pieces: Iterable[bytes | memoryview]) -> int:
        """As of a socket, but it takes no more of the pieces than it encrypts at a time."""
        data = bytearray()
        for piece in pieces:
            data += piece[: _PIECE_BYTES - len(data)]
            if len(data) == _PIECE_BYTES:
                break
        return self.send(bytes(data))

    def sendall(self, data: bytes | memoryview) -> None:
        """As of a socket: the timeout is that of the whole."""
        left = memoryview(data)
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while left:
            wait_s = None if deadline is None else max(0.001, deadline - time.monotonic())
            left = left[self._patiently(partial(self._write, left), wait_s, False) :]

    # Without waiting, under the lock.

    def _read(self, count: int) -> bytes:
        buffer = bytearray(count)
        return bytes(buffer[: self._read_into(memoryview(buffer))])

    def _read_into(self, buffer: memoryview) -> int:
        filled = 0
        self.pending = False
        while filled < len(buffer):
            try:
                self._shake_hands()
                count = self._tls.read(len(buffer) - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if filled or not self._fetch():
                    return filled
                continue
            except ssl.SSLError as error:
                raise _broken(error) from error
            if not count:
                return filled
            filled += int(count)
        self.pending = True
        return filled

    def _write(self, data: bytes | memoryview) -> int:
        self._flush()
        if not self._accepted:
            self._finish_handshake()
            self._accepted = self._tls.write(data[:_PIECE_BYTES])
            self._flush()
        accepted, self._accepted = self._accepted, 0
        return accepted

    def _finish_handshake(self) -> None:
        """Raises BlockingIOError if it is the other end's turn."""
        while not self._shaken:
            try:
                self._shake_hands()
            except ssl.SSLWantReadError:
                if not self._fetch():
                    raise ConnectionError("closed") from None
            except ssl.SSLError as error:
                raise _broken(error) from error

    def _shake_hands(self) -> None:
        if self._shaken:
            return
        try:
            self._tls.do_handshake()
        finally:  # Also what tells the other end why it failed.
            self._flush()
        if self._pinned:
            shown = self._tls.getpeercert(binary_form=True) or b""
            if not hmac.compare_digest(_digest(shown), self._pinned):
                raise WrongCertificateError("whoever listens there shows another certificate")
        self._shaken = True

    def _fetch(self) -> bool:
        """Take in what the socket has; False at its end. Raises BlockingIOError if there is nothing."""
        data = self._sock.recv(_RECEIVE_BYTES)
        self._incoming.write(data)
        return bool(data)

    def _flush(self) -> None:
        """Raises BlockingIOError if the socket takes no more."""
        while self._encrypted or self._outgoing.pending:
            if not self._encrypted:
                self._encrypted = memoryview(self._outgoing.read())
            self._encrypted = self._encrypted[self._sock.send(self._encrypted) :]

    def _patiently(self, attempt: Callable[[], T], timeout: float | None, reading: bool) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                try:
                    return attempt()
                except BlockingIOError:
                    if timeout == 0:
                        raise
                shaken, unsent = self._shaken, bool(self._encrypted)
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimeoutError("timed out")
            if shaken:
                events = select.POLLIN if reading else select.POLLOUT
            else:  # Another thread may shake hands for this one.
                events = select.POLLIN | (select.POLLOUT if unsent else 0)
                left_s = _LOOK_AGAIN_S if left_s is None else min(left_s, _LOOK_AGAIN_S)
            waiting = select.poll()
            try:
                waiting.register(self._sock, events)
            except ValueError as error:
                raise ConnectionError("closed") from error
            waiting.poll(None if left_s is None else left_s * 1000)


def has_pending(sock: socket.socket | TlsSocket) -> bool:
    """Whether to receive again although the socket may never become readable."""
    return isinstance(sock, TlsSocket) and sock.pending


def _broken(error: ssl.SSLError) -> ConnectionError:
    return ConnectionError(f"no TLS with the other end: {error.reason or error}")


def _digest(certificate: bytes) -> str:
    return hashlib.sha256(certificate).hexdigest()


@lru_cache(maxsize=8)
def _client_context(certificate: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # Hosts have no names here: the certificate itself is compared.
    if certificate is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=certificate)
    return context


@lru_cache(maxsize=8)
def _server_context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # Nobody resumes a session.
    # OpenSSL takes it from files only. This one is readable for its user alone, and gone at once.
    with tempfile.NamedTemporaryFile("w", prefix="minirt-", suffix=".pem") as both:
        both.write(certificate.certificate + certificate.key)
        both.flush()
        context.load_cert_chain(both.name)
    return context
