"""`minirt demo` as a command in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def demo(
    folder: Path, *arguments: str, temporary: Path | None = None, timeout: float = 280, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run it with `temporary`, or else the folder, for temporary files, and `more` in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "minirt", "demo", *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary or folder), **more},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
