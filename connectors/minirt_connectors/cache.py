"""Where connectors keep files that a later start of the same program should find again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder `name` in the user's cache (`$XDG_CACHE_HOME/minirt`, `~/.cache/minirt`)."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "minirt" / name
