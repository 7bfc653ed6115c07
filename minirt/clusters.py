"""Where a job runs if not on this machine alone: on hosts whose agents come to the job by themselves.

An agent is `minirt host`. Whoever starts agents, a person or a scheduler, is a *launcher*: a subclass of
`HostCluster` that says how in `launch`, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass, field
from typing import Literal, Protocol

from minirt.errors import ConfigurationError
from minirt.units import Duration, positive, seconds

CREDENTIALS_VARIABLE = "MINIRT_CREDENTIALS"
"""The environment variable that gives credentials to an agent."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What agents need to come to a job. `credentials` are secret: they belong in no argument or log."""

    job: str
    coordinator: str
    """HOST:PORT, for `minirt host --coordinator`."""
    credentials: str = field(repr=False)
    """For the file of `--credentials`, or the environment variable MINIRT_CREDENTIALS."""
    slots: int
    """How many slots the job fills."""


class Launched(Protocol):
    """What `launch` has started."""

    @property
    def how(self) -> str:
        """What to do if too few agents come, for messages."""

    def failure(self) -> str | None:
        """Why no agents will come any more, once that is known. Called often: it must not wait."""

    def close(self) -> None:
        """The job is over: end whatever still runs, and leave nothing behind."""


@dataclass(frozen=True)
class Reactive:
    """The parallelism of a job follows the slots of its hosts, for `HostCluster(reactive=Reactive())`.

    The job begins as soon as there are slots for the parallelism that it states. With fewer after
    `HostCluster.wait` it begins at a smaller one, down to `min_slots` or else 1. So it goes on after the
    loss of hosts, and waits for them no longer than `patience`, nor than `wait`. With more slots it grows
    behind a checkpoint, up to `max_slots`, or else to its max_parallelism: once they have been the same for
    `settle`, and at most `rescales` times within `per`. Operators that state their own parallelism keep it.
    Raises ConfigurationError for values that cannot work.
    """

    max_slots: int | None = None
    settle: Duration = "10s"
    patience: Duration = "20s"
    rescales: int = 6
    per: Duration = "1h"

    def __post_init__(self) -> None:
        if self.max_slots is not None:
            positive("Reactive: max_slots", self.max_slots)
        positive("Reactive: rescales", self.rescales)
        seconds(self.settle, "Reactive: settle")
        seconds(self.patience, "Reactive: patience")
        if seconds(self.per, "Reactive: per") == 0:
            raise ConfigurationError(f"Reactive: per must be positive, got {self.per!r}")


@dataclass(frozen=True)
class HostCluster:
    """Hosts on which somebody starts `minirt host`: by ssh, systemd, a scheduler.

    The coordinator listens at `listen`, "HOST:PORT", and binds no other address; port 0 is any free one.
    Agents need the file `credentials`, which is written anew for each run and removed at its end. By
    default it is in a temporary folder, and a message says where.

    The job needs as many slots as its widest operator has subtasks, or `Options.workers`. It waits for
    them for `wait`, and fails if fewer have come by then. After the loss of a host it waits on, which
    counts as no failure. With at least `min_slots` after `wait`, it goes on with several subtasks of an
    operator in one slot. When enough have come after all, it goes on with all of them from its next
    checkpoint. With `reactive` its parallelism follows the slots instead.

    Without `tls` whoever sees the network reads the records; the secret is never sent in either case.
    With `compression="lz4"` data is compressed on its way to another host: worth it where the network, and
    not the CPU, is what is short.
    Raises ConfigurationError for values that cannot work.
    """

    listen: str
    credentials: str | os.PathLike[str] | None = None
    wait: Duration = "60s"
    min_slots: int | None = None
    tls: bool = True
    reactive: Reactive | None = None
    compression: Literal["lz4"] | None = None

    def __post_init__(self) -> None:
        parse_address(self.listen, f"{type(self).__name__}: listen")
        seconds(self.wait, f"{type(self).__name__}: wait")
        if self.min_slots is not None:
            positive(f"{type(self).__name__}: min_slots", self.min_slots)
        if self.compression not in (None, "lz4"):
            raise ConfigurationError(
                f'{type(self).__name__}: compression is "lz4" or None, not {self.compression!r}'
            )
        if self.reactive is not None and not isinstance(self.reactive, Reactive):
            raise ConfigurationError(
                f"{type(self).__name__}: reactive is a Reactive(), not {self.reactive!r}"
            )

    def launch(self, invitation: Invitation) -> Launched:
        """Have agents started. Called when the coordinator listens; must not wait for them."""
        return WrittenCredentials(self.credentials, invitation)


class WrittenCredentials:
    """The file that tells agents the secret; only its owner can read it."""

    def __init__(self, path: str | os.PathLike[str] | None, invitation: Invitation) -> None:
        self._folder = None
        if path is None:
            self._folder = tempfile.mkdtemp(prefix="minirt-credentials-")
            path = os.path.join(self._folder, "credentials.json")
        self._path = os.path.abspath(path)
        written = f"{self._path}.{os.getpid()}"
        try:
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(invitation.credentials)
            os.replace(written, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(written)
            raise ConfigurationError(f"the credentials cannot be written: {error}") from error
        self._text = invitation.credentials
        self.how = (
            f"run `minirt host --coordinator {invitation.coordinator} --slots N "
            f"--credentials {self._path}` on each host"
        )

    def failure(self) -> str | None:
        return None

    def close(self) -> None:
        try:
            with open(self._path) as file:
                mine = file.read() == self._text
            if mine:  # Else it is that of a later job by now.
                os.remove(self._path)
            if self._folder is not None:
                os.rmdir(self._folder)
        except OSError:
            pass


def parse_address(text: str, what: str) -> tuple[str, int]:
    """Host and port from "HOST:PORT" or "[HOST]:PORT". Raises ConfigurationError, naming `what`."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{what} is HOST:PORT, not {text!r}")
    return host, int(port)
