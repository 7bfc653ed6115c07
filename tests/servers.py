"""Servers of tests, each with a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar


class Server(Protocol):
    def stop(self) -> None: ...


S = TypeVar("S", bound=Server)


@contextmanager
def running(name: str, start: Callable[[Path], S]) -> Iterator[S]:
    """A server in a new folder; both are gone afterwards."""
    # Not below the folder of pytest, which only this user may enter.
    folder = Path(tempfile.mkdtemp(prefix=f"minirt-{name}-"))
    server: S | None = None
    try:
        server = start(folder)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
