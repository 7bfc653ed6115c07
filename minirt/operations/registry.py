"""Which jobs run on this machine: one file a job, in a folder that only its user can enter."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from minirt.errors import MinirtError
from minirt.process_names import has_surely_ended, is_of_this_place, name_of_this_process

_ENTRY_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A job that runs. A caller that knows the access token may ask it for anything."""

    id: str
    name: str
    pid: int
    started_at: float
    """Seconds since 1970."""
    token: str
    control: str = ""
    """The URL by which other hosts reach it; empty if they cannot."""
    process: str = ""
    """The name of its process, unlike every other of any host or container; empty where there is none."""

    @staticmethod
    def new(name: str, started_at: float, token: str | None = None, control: str = "") -> Entry:
        """Of a job of this process; its token is made unless there is one."""
        token = secrets.token_hex(32) if token is None else token
        process = name_of_this_process() or ""
        return Entry(secrets.token_hex(4), name, os.getpid(), started_at, token, control, process)

    @property
    def told(self) -> dict[str, Any]:
        """What everybody may be told who may ask the job: all but its token."""
        named = {name: getattr(self, name) for name in ("id", "name", "pid", "started_at")}
        return {**named, "control": self.control or None}


class Registry:
    """The folder of entries. Raises MinirtError if it cannot be made, or is not its user's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            raise MinirtError(f"cannot list running jobs in {folder}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise MinirtError(f"{folder} is not a folder of yours")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise MinirtError(f"others may enter {folder}: remove their rights with chmod 700")

    @staticmethod
    def of_user() -> Registry:
        """In XDG_RUNTIME_DIR, or else where programs of this user keep their state."""
        if runtime := os.environ.get("XDG_RUNTIME_DIR"):
            return Registry(Path(runtime) / "minirt" / "jobs")
        try:
            state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise MinirtError(
                "there is no home to list running jobs in; set XDG_STATE_HOME"
            ) from error
        return Registry(Path(state) / "minirt" / "jobs")

    def socket_path(self, entry: Entry) -> Path:
        return self._folder / f"{entry.id}.sock"

    def token_path(self, entry: Entry) -> Path:
        """Where the token stands alone, of a job that other hosts reach: a file to take along."""
        return self._folder / f"{entry.id}.token"

    def add(self, entry: Entry) -> None:
        """Make the job known; its socket must take requests already."""
        if entry.control:
            _write(self.token_path(entry), f"{entry.token}\n")
        hidden = self._folder / f".{entry.id}"
        _write(hidden, json.dumps(asdict(entry)))
        hidden.rename(self._path(entry))

    def remove(self, entry: Entry) -> None:
        for path in (self._path(entry), self.socket_path(entry), self.token_path(entry)):
            path.unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """Return the jobs of this host that run, oldest first, and remove what ended ones have left.

        Several hosts or containers may share the folder, as they do a home. What runs elsewhere is neither
        listed nor removed: nothing here tells whether it lives.
        """
        living = []
        for entry in self._read():
            if entry.process and not is_of_this_place(entry.process):
                continue
            if _has_ended(entry):
                self.remove(entry)
            else:
                living.append(entry)
        return sorted(living, key=lambda entry: (entry.started_at, entry.id))

    def _path(self, entry: Entry) -> Path:
        return self._folder / f"{entry.id}.json"

    def _read(self) -> Iterator[Entry]:
        for path in self._folder.glob("*.json"):
            try:
                with path.open("rb") as file:
                    plain = json.loads(file.read(_ENTRY_BYTES_MAX))
                entry = Entry(**plain)
            except (OSError, ValueError, TypeError, RecursionError):
                continue  # It has just ended, or is no entry.
            if self._path(entry) == path and _has_right_types(entry):
                yield entry


def _write(path: Path, text: str) -> None:
    """A new file for its user alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _has_right_types(entry: Entry) -> bool:
    kinds = {"pid": int, "started_at": float}
    return all(
        isinstance(getattr(entry, field.name), kinds.get(field.name, str))
        for field in fields(entry)
    )


def _has_ended(entry: Entry) -> bool:
    """Return True if the process is gone, or its number is another process's by now."""
    return has_surely_ended(entry.process) if entry.process else not _is_alive(entry.pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return pid > 0
