"""What the processes of a run tell each other: how far the job is, and when to fail or to stop.

Failures are keyed on how often the job was restarted and how many checkpoints it has completed since,
never on time. The test's own process hears of both from the job and writes them down; the functions of
the job read them in the workers. The board is a small file that all of them map into memory.
"""

from __future__ import annotations

import mmap
import os
import signal
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

PLANNED = "planned failure"

HOOKS = (
    "open_split",
    "read",
    "open",
    "process",
    "store",
    "load",
    "open_writer",
    "write",
    "prepare",
    "finish",
    "commit",
    "close",
)
"""Where the functions of a job can be made to fail, in the order in which a job comes upon them.

`store` is the packing of state for a snapshot and `load` its unpacking; `prepare` and `finish` are the
synchronous and the asynchronous part of a sink's snapshot; `close` comes only once a job has ended.
"""

AT_START = ("open_split", "open", "load", "open_writer")
"""These a job comes upon when it starts only, and loads state only if there was a checkpoint."""

_MISSED_AFTER = 3
"""A failure at the start that has not come about after so many checkpoints comes at any hook."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Fail at a hook once so many checkpoints have completed since the last restart."""

    hook: str
    completed: int = 0
    kill: bool = False
    """End the process by SIGKILL instead of raising."""


class _Field(IntEnum):
    RESTARTS = 0
    COMPLETED = 1
    ARMED = 2
    STOPPING = 3


_FIELD_BYTES = 4


class Board:
    """Failure i is what ends the job after i restarts; those below `armed` may come about."""

    def __init__(self, folder: Path, failures: Sequence[Failure]) -> None:
        self._path = folder / f"board-{uuid.uuid4().hex}"
        self._path.write_bytes(bytes(_FIELD_BYTES * len(_Field)))
        self.failures = tuple(failures)

    # What the test writes.

    def restarted(self) -> None:
        self._write(_Field.COMPLETED, 0)
        self._write(_Field.RESTARTS, self.restarts + 1)

    def completed_one(self) -> None:
        self._write(_Field.COMPLETED, self.completed + 1)

    def arm(self, failures: int) -> None:
        self._write(_Field.COMPLETED, 0)
        self._write(_Field.ARMED, failures)

    def stop(self) -> None:
        """Let the sources come to their end."""
        self._write(_Field.STOPPING, 1)

    # What all read.

    @property
    def restarts(self) -> int:
        return self._read(_Field.RESTARTS)

    @property
    def completed(self) -> int:
        """Checkpoints since the last restart."""
        return self._read(_Field.COMPLETED)

    @property
    def armed(self) -> int:
        return self._read(_Field.ARMED)

    @property
    def stopping(self) -> bool:
        return bool(self._read(_Field.STOPPING))

    def reach(self, hook: str) -> None:
        """Called at each hook: raises or dies if it is time to."""
        restarts = self.restarts
        if restarts >= self.armed:
            return
        failure = self.failures[restarts]
        due = hook == failure.hook and self.completed >= failure.completed
        if failure.hook in AT_START and self.completed >= _MISSED_AFTER:
            due = hook != "commit"  # That one runs in the process of the test.
        if not due:
            return
        if failure.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(f"{PLANNED} {restarts} in {hook}")

    def _read(self, field: _Field) -> int:
        return int(_fields(self._path)[field])

    def _write(self, field: _Field, value: int) -> None:
        _fields(self._path)[field] = value


@cache
def _fields(path: Path) -> memoryview:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("I")
