"""What a host agent says when it comes to a job, and what it is answered.

The hello and a refusal are plain dicts: the versions of the two sides may differ, and that must be told
before anything else is understood.
"""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from minirt.errors import ConfigurationError
from minirt.filesystems import Protocols
from minirt.runtime.network.tls import Certificate

_PACKAGES = ("minirt", "pyarrow", "numpy")
_HELLO, _REFUSED = "minirt-host", "minirt-refused"


@dataclass(frozen=True, slots=True)
class HostHello:
    """Who comes, what it offers, and what it runs on. Workers will listen at `address`."""

    name: str
    pid: int
    slots: int
    address: str
    versions: Mapping[str, str]

    @classmethod
    def of_this_host(cls, slots: int, address: str) -> HostHello:
        return cls(socket.gethostname(), os.getpid(), slots, address, versions())

    def plain(self) -> dict[str, Any]:
        return {
            _HELLO: 1,
            "name": self.name,
            "pid": self.pid,
            "slots": self.slots,
            "address": self.address,
            "versions": dict(self.versions),
        }

    @classmethod
    def from_plain(cls, said: Mapping[str, Any]) -> HostHello:
        """Raises ConfigurationError for what this version does not understand."""
        try:
            if said[_HELLO] != 1:
                raise ValueError(said[_HELLO])
            return cls(
                str(said["name"]),
                int(said["pid"]),
                int(said["slots"]),
                str(said["address"]),
                dict(said["versions"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError("a host agent says hello in another way") from error

    def mismatch(self) -> str | None:
        """Which versions differ from those here, in one line."""
        here = versions()
        differing = [
            f"{name} {self.versions.get(name, 'missing')} (the job's program has {wanted})"
            for name, wanted in here.items()
            if self.versions.get(name) != wanted
        ]
        return f"it has {', '.join(differing)}" if differing else None

    def __str__(self) -> str:
        return f"host {self.name} at {self.address} (process {self.pid})"


def refusal(why: str) -> dict[str, str]:
    return {_REFUSED: why}


def refuse_if_told(answer: object) -> None:
    """Raises ConfigurationError if a host is told by the coordinator that the job does not want it."""
    if isinstance(answer, dict) and _REFUSED in answer:
        raise ConfigurationError(f"the job refuses this host: {answer[_REFUSED]}")


@dataclass(frozen=True, slots=True)
class Probe:
    """An object in the storage of the job that says whether two hosts see the same."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class HostWelcome:
    """What an agent that is let in learns of the job. `package` is a pickled JobPackage.

    `certificate` has the key, so that workers can be called as well. The agent reads the object `probe`,
    and stores `answer`.
    """

    protocols: Protocols
    package: bytes
    certificate: Certificate | None
    compress: bool
    probe: Probe | None
    answer: Probe | None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an agent must have beforehand to come to a job."""

    token: bytes
    certificate: Certificate | None

    def text(self) -> str:
        known = None if self.certificate is None else self.certificate.certificate
        return json.dumps({"token": self.token.hex(), "certificate": known})

    @classmethod
    def from_text(cls, text: str) -> Credentials:
        """Raises ConfigurationError, without showing the text."""
        try:
            said = json.loads(text)
            known = said["certificate"]
            return cls(
                bytes.fromhex(said["token"]), None if known is None else Certificate(str(known))
            )
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(
                "these are no credentials of a job: give the file that the job has written"
            ) from None


def versions() -> dict[str, str]:
    """Code travels between Pythons of one minor version; of packages all of the version counts."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "uninstalled"
    return found
