"""Which jobs run on this machine: one file a job, in a folder that only its user can enter."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from minirt.errors import MinirtError

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

    @staticmethod
    def new(name: str, started_at: float) -> Entry:
        return Entry(secrets.token_hex(4), name, os.getpid(), started_at, secrets.token_hex(32))


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

    def add(self, entry: Entry) -> None:
        """Make the job known; its socket must take requests already."""
        hidden = self._folder / f".{entry.id}"
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(entry), file)
        hidden.rename(self._path(entry))

    def remove(self, entry: Entry) -> None:
        self._path(entry).unlink(missing_ok=True)
        self.socket_path(entry).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """The jobs whose process is alive, oldest first; removes what dead ones have left behind."""
        living = []
        for entry in self._read():
            if _is_alive(entry.pid):
                living.append(entry)
            else:
                self.remove(entry)
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


def _has_right_types(entry: Entry) -> bool:
    kinds = {"pid": int, "started_at": float}
    return all(
        isinstance(getattr(entry, field.name), kinds.get(field.name, str))
        for field in fields(entry)
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return pid > 0
