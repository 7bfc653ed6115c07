"""File systems with next to no room."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A folder that holds so much. The test is skipped where nobody may mount one."""
    place = Path(tempfile.mkdtemp(prefix="minirt-full-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("only root can mount a small disk, and not everywhere")
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
    finally:
        place.rmdir()


def grow(place: Path) -> None:
    """Give it room."""
    subprocess.run(["mount", "-o", "remount,size=100m", place], check=True)
