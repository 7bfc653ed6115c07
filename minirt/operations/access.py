"""Where a job is reached from other hosts, and the token that whoever asks it must know."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from minirt.clusters import parse_address
from minirt.errors import ConfigurationError
from minirt.runtime.network.sockets import shown
from minirt.runtime.network.tls import Certificate, Fingerprint

SCHEME = "minirt://"
TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "MINIRT_TOKEN", "MINIRT_TOKEN_FILE"
TOKEN_CHARACTERS_MIN = 32
"""Whoever calls is shown what a token was used for, and may try short ones until one fits."""
_TOKEN_CHARACTERS_MAX = 1024
_FINGERPRINT = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ControlUrl:
    """The address of a control port, and the certificate that is shown there."""

    address: tuple[str, int]
    fingerprint: Fingerprint

    @classmethod
    def parse(cls, text: str) -> ControlUrl:
        """From "minirt://HOST:PORT#FINGERPRINT". Raises ConfigurationError."""
        where, _, digits = text.removeprefix(SCHEME).partition("#")
        if "@" in where:
            raise ConfigurationError(
                f"a token does not belong in a URL, which others may see: give it in {TOKEN_VARIABLE}"
            )
        address = parse_address(where.removesuffix("/"), f"{SCHEME}{where}: what names the job")
        if not _FINGERPRINT.fullmatch(digits):
            raise ConfigurationError(
                f"{SCHEME}{where} must end in # and the fingerprint of the job's certificate, 64 digits: "
                "copy the whole URL from its log, or from `minirt jobs` on its host"
            )
        return cls(address, Fingerprint(digits))

    @property
    def place(self) -> str:
        """Without the fingerprint, for messages."""
        return f"{SCHEME}{shown(self.address)}"

    def __str__(self) -> str:
        return f"{self.place}#{self.fingerprint.digits}"


def is_url(job: str) -> bool:
    """Whether somebody names a job by its URL."""
    return job.startswith(SCHEME)


def token_given(environ: Mapping[str, str] | None = None) -> str | None:
    """The token that the environment gives, or names the file of; None if it does neither.

    Raises ConfigurationError, without showing it, for one that is too short or cannot be read.
    """
    environ = os.environ if environ is None else environ
    token, path = environ.get(TOKEN_VARIABLE), environ.get(TOKEN_FILE_VARIABLE)
    if token is not None and path is not None:
        raise ConfigurationError(f"give {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}, not both")
    if path is not None:
        return _checked(_read(path), f"the file of {TOKEN_FILE_VARIABLE}, {path},")
    return None if token is None else _checked(token, TOKEN_VARIABLE)


def token_for_asking() -> str:
    """The token that the environment gives. Raises ConfigurationError if there is none."""
    token = token_given()
    if token is None:
        raise ConfigurationError(
            f"a job is asked by URL with its token: give {TOKEN_VARIABLE}, or {TOKEN_FILE_VARIABLE} with "
            "the path of a file that holds it"
        )
    return token


@lru_cache(maxsize=1)
def token_of_program() -> str:
    """One that was made: the same for all jobs of this program, so that a rescaled job keeps its URL."""
    return secrets.token_hex(32)


def certificate_of(token: str) -> Certificate:
    """The certificate of control ports with that token, whose fingerprint stands in their URLs.

    Who knows the token may speak for the job anyway. So the key is made of it, and a URL holds for as long
    as the token does: over restarts of the program, and after another one has taken the job over.
    """
    return Certificate.make(hmac.digest(token.encode(), b"minirt control certificate", "sha256"))


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(_TOKEN_CHARACTERS_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{TOKEN_FILE_VARIABLE}: cannot read {path}: {error.strerror}"
        ) from error


def _checked(token: str, what: str) -> str:
    token = token.strip()
    if not TOKEN_CHARACTERS_MIN <= len(token) <= _TOKEN_CHARACTERS_MAX or not token.isprintable():
        raise ConfigurationError(
            f"{what} must hold a token of {TOKEN_CHARACTERS_MIN} to {_TOKEN_CHARACTERS_MAX} characters "
            "that nobody can guess, such as `openssl rand -hex 32` prints"
        )
    return token
