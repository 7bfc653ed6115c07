"""Where a part lies: in a file of its own, or in one that it shares with other parts of its checkpoint.

The path of a part that shares its file is `FILE@START+LENGTH`, in bytes. A file is kept as long as any of
its parts is needed.
"""

from __future__ import annotations

import re

_SHARED = re.compile(r"(.+)@(\d+)\+(\d+)")


def shared_path(file: str, start: int, length: int) -> str:
    """The path of the part in these bytes of a file."""
    return f"{file}@{start}+{length}"


def file_of(path: str) -> str:
    """The file that a part is in."""
    match = _SHARED.fullmatch(path)
    return path if match is None else match[1]


def range_of(path: str) -> tuple[int, int] | None:
    """Where in its file a part starts, and its length; None if it has the file for itself."""
    match = _SHARED.fullmatch(path)
    return None if match is None else (int(match[2]), int(match[3]))
