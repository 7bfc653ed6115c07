"""The consoles that commands print to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 160
"""A pipe has no width: wide enough for every table."""


def console(*, stderr: bool = False) -> Console:
    """A console for text and tables, on standard output or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_COLUMNS
    return Console(file=stream, stderr=stderr, width=width, highlight=False, markup=False)
