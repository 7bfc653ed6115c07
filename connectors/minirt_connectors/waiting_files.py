"""Files that a writer has stored, and that wait until a commit names them in a table.

Nobody but the sink knows of them until then, so whatever cleans up folders may take them. A commit that
named a file which is gone would leave a table that nobody can read: so each commit looks for all of its
files first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from minirt.errors import JobFailedError

_AT_ONCE = 16

SizeOf = Callable[[str], int | None]
"""Tells how many bytes a file has; None if it is not there. Called in several threads at once."""


def look_for_files(table: str, files: Sequence[tuple[str, int]], size_of: SizeOf) -> None:
    """Look whether files are there, and as large as they were written; `files` are paths and sizes.

    Raises JobFailedError, which names the table and a file, if one is not.
    """
    if not files:
        return
    paths = [path for path, _ in files]
    with ThreadPoolExecutor(min(_AT_ONCE, len(files)), "minirt-waiting-files") as threads:
        found = list(threads.map(size_of, paths))
    lost = [path for (path, size), there in zip(files, found, strict=True) if there != size]
    if lost:
        raise JobFailedError(
            f"{table}: {lost[0]} waited for its commit, and was deleted or changed since"
            f"{f', as were {len(lost) - 1} other files' if len(lost) > 1 else ''}: was VACUUM, or another "
            "clean-up of files that no version names, run with a short retention? The table is as it was "
            "before. These records are lost here; start the job from an older checkpoint into a new table, "
            "or give them up"
        )
