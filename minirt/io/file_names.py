"""The names of pending and final files, and the handles that carry both through checkpoints.

A handle comes back from storage, where anybody may have written it. So it is read by a strict grammar,
and names nothing but files that a writer of a file sink may have made.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

from minirt.errors import CorruptCheckpointError
from minirt.io.base import Handle, SinkContext

PENDING_FOLDER = "_minirt"

_FILE = r"\d{4,}-[0-9a-f]{8}[\w.-]*"
_PENDING = re.compile(
    rf"(?P<subtask>\d{{5,}})-(?P<file>(?P<generation>\d{{4,}})-{_FILE})\.pending", re.ASCII
)
_FINAL = re.compile(rf"part-(?P<subtask>\d{{5,}})-\d{{8,}}-(?P<file>\d{{4,}}-{_FILE})", re.ASCII)
_OWNER = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*)?-[0-9a-f]{8,16}")
_PARTITION = re.compile(r"[^/=\0]+=[^/\0]*")


class FileNames:
    """Pending and final names of one writer's files; no two writers ever give out the same."""

    def __init__(self, folder: str, suffix: str, context: SinkContext) -> None:
        self._folder = folder
        self._pending = pending_folder(folder, context.identity.name)
        self._suffix = suffix
        self._subtask = f"{context.subtask:05d}"
        self._generation = f"{context.generation:04d}"
        self._unique = uuid.uuid4().hex[:8]

    def pending(self, number: int) -> str:
        name = f"{self._subtask}-{self._generation}-{number:04d}-{self._unique}"
        return f"{self._pending}/{name}{self._suffix}.pending"

    def final(self, number: int, checkpoint_id: int, partition: str = "") -> str:
        name = f"part-{self._subtask}-{checkpoint_id:08d}-{self._generation}"
        folder = f"{self._folder}/{partition}" if partition else self._folder
        return f"{folder}/{name}-{number:04d}-{self._unique}{self._suffix}"


@dataclass(frozen=True, slots=True)
class FileHandle:
    """A handle: output that waits in one pending file. All paths are below one folder, as `FileNames` makes
    them.

    What is held back has the name of the file that is `joined` from it and others later; a joined file
    knows the pending files that it was made of, its `parts`.
    """

    folder: str
    pending: str
    final: str
    joined: str | None = None
    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, handle: Handle) -> FileHandle:
        """Raises CorruptCheckpointError for whatever no file sink has made."""
        try:
            return cls._parse(handle)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                f"a handle was not made by a file sink ({error}): {handle!a:.500}"
            ) from error

    @classmethod
    def _parse(cls, handle: Handle) -> FileHandle:
        pending, final, joined = handle["pending"], handle["final"], handle.get("joined")
        folder, owner, name = _split_pending(pending)
        if _file(_FINAL, _name_in(folder, final)) != _file(_PENDING, name):
            raise ValueError("its two names are of different files")
        if joined is not None:
            _file(_FINAL, _name_in(folder, joined))
        parts = tuple(handle.get("parts", ()))
        if any(_split_pending(part)[:2] != (folder, owner) for part in parts):
            raise ValueError("its parts are in another folder")
        return cls(folder, pending, final, joined, parts)


def pending_folder(folder: str, owner: str) -> str:
    """Where the pending files of one owner are."""
    return f"{folder}/{PENDING_FOLDER}/{owner}"


def is_written_before(path: str, generation: int) -> bool:
    """Whether a writer of an earlier generation gave out this name of a pending file.

    Other names are those of files that are none of ours, such as `.DS_Store` and `.nfs0001`.
    """
    match = _PENDING.fullmatch(path.rpartition("/")[2])
    return match is not None and int(match["generation"]) < generation


def _split_pending(path: Any) -> tuple[str, str, str]:
    """The target folder, the owner and the name of a pending file."""
    folder, found, rest = _text(path).rpartition(f"/{PENDING_FOLDER}/")
    owner, _, name = rest.partition("/")
    if not found or not _OWNER.fullmatch(owner):
        raise ValueError(f"{path!a} is no path of a pending file")
    _file(_PENDING, name)
    return folder, owner, name


def _name_in(folder: str, final: Any) -> str:
    """The name of a final file in the folder or in a partition of it."""
    if not _text(final).startswith(f"{folder}/"):
        raise ValueError(f"{final!a} is not below {folder!a}")
    *partitions, name = final[len(folder) + 1 :].split("/")
    if not all(map(_PARTITION.fullmatch, partitions)):
        raise ValueError(f"{final!a} is in no partition of {folder!a}")
    return str(name)


def _file(form: re.Pattern[str], name: str) -> tuple[str, str]:
    """Which subtask and file a name is of."""
    match = form.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!a} is no name of such a file")
    return match["subtask"], match["file"]


def _text(path: Any) -> str:
    if not isinstance(path, str):
        raise TypeError(f"{path!a} is no path")
    return path
