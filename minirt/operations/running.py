"""Running jobs, wherever they are: of this user on this machine by name, on other hosts by URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from minirt.errors import ConfigurationError, MinirtError
from minirt.operations.access import ControlUrl, is_url, token_for_asking
from minirt.operations.control import ask
from minirt.operations.exchange import JobHasEndedError, Plain
from minirt.operations.port import ask_at
from minirt.operations.registry import Entry, Registry

_STATUS_S_MAX = 5.0


class RunningJob(Protocol):
    """A job that can be asked for something."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def ask(self, request: Mapping[str, Any], timeout: float | None = None) -> Plain:
        """Its answer. `timeout` in seconds; None waits for as long as the job lives.

        Raises JobHasEndedError, ConfigurationError or MinirtError as the job did, and these as well if it
        cannot be asked.
        """

    def path(self, given: str) -> str:
        """A path or URL that a user has given, as the job understands it. Raises ConfigurationError."""

    def successor(self) -> RunningJob | None:
        """The job that goes on in its place once it has ended, as after `minirt rescale`."""


class LocalJob:
    """A job of the registry."""

    def __init__(self, entry: Entry, registry: Registry) -> None:
        self.entry = entry
        self.name = entry.name
        self._registry = registry

    def ask(self, request: Mapping[str, Any], timeout: float | None = None) -> Plain:
        try:
            return ask(self._registry.socket_path(self.entry), self.entry.token, request, timeout)
        except (ConnectionRefusedError, FileNotFoundError):
            self._registry.remove(self.entry)
            raise JobHasEndedError(f"job {self.name!r} ({self.entry.id}) has just ended") from None

    def path(self, given: str) -> str:
        """The job may have another working directory."""
        return given if "://" in given else os.path.abspath(os.path.expanduser(given))

    def successor(self) -> LocalJob | None:
        following = [entry for entry in self._registry.entries() if self._follows(entry)]
        return LocalJob(following[-1], self._registry) if following else None

    def _follows(self, entry: Entry) -> bool:
        own = self.entry
        return entry.name == own.name and entry.id != own.id and entry.started_at >= own.started_at


class RemoteJob:
    """A job at a control port. Another one that answers there later is its successor."""

    def __init__(self, url: ControlUrl, token: str) -> None:
        self.name = url.place
        self._url = url
        self._token = token
        self._id: str | None = None

    def ask(self, request: Mapping[str, Any], timeout: float | None = None) -> Plain:
        answer, job_id = ask_at(self._url, self._token, request, timeout)
        if self._id not in (None, job_id):
            raise JobHasEndedError(f"the job at {self.name} has ended, and another one runs there")
        self._id = job_id
        return answer

    def path(self, given: str) -> str:
        if "://" in given or os.path.isabs(given):
            return given
        raise ConfigurationError(
            f"the job at {self.name} does not know this folder: give a URL or an absolute path of its host "
            f"instead of {given!r}"
        )

    def successor(self) -> RemoteJob | None:
        other = RemoteJob(self._url, self._token)
        try:
            other.ask({"request": "status"}, _STATUS_S_MAX)
        except MinirtError:
            return None
        return other


def find_job(job: str) -> RunningJob:
    """The job at that URL, or of that name or id. Raises ConfigurationError if none or several fit."""
    if is_url(job):
        return RemoteJob(ControlUrl.parse(job), token_for_asking())
    registry = Registry.of_user()
    return LocalJob(_find(job, registry.entries()), registry)


def only_job() -> RunningJob:
    """The only job that runs here. Raises ConfigurationError if there are none or several."""
    registry = Registry.of_user()
    entries = registry.entries()
    if len(entries) == 1:
        return LocalJob(entries[0], registry)
    if not entries:
        raise ConfigurationError("no jobs are running")
    raise ConfigurationError(f"several jobs are running; name one: {_shown(entries)}")


def _find(job: str, entries: list[Entry]) -> Entry:
    found = [entry for entry in entries if entry.name == job]
    found = found or [entry for entry in entries if job and entry.id.startswith(job)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(
            f"several jobs are called {job!r}; give the id of one: {_shown(found)}"
        )
    running = f"running are {_shown(entries)}" if entries else "no jobs are running"
    raise ConfigurationError(f"there is no job {job!r}; {running}")


def _shown(entries: list[Entry]) -> str:
    return ", ".join(f"{entry.name} ({entry.id})" for entry in entries)
