"""Names of processes that no other one ever gets, so that others of the machine can tell a dead one."""

from __future__ import annotations

import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STARTED_FIELD = 19
"""Of those in /proc/PID/stat that stand behind the name of the program."""


def name_of_this_process() -> str | None:
    """None where the machine has no such names: they are those of Linux."""
    place, started = _place(), _started(os.getpid())
    return None if place is None or not started else f"{place}/{os.getpid()}/{started}"


def is_of_this_place(name: str) -> bool:
    """Return True if the process of that name runs, or ran, on this machine and in this container."""
    return name.rsplit("/", 2)[0] == _place()


def has_surely_ended(name: str) -> bool:
    """Whether the process of that name is no more. False for those of other machines and containers."""
    place, pid, started = ([*name.rsplit("/", 2), "", ""])[:3]
    if place != _place() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(int(pid)) not in (started, None)


def _place() -> str | None:
    """This start of the machine, and what its container counts processes in."""
    try:
        with open(_BOOT_ID) as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When the process was started, in ticks since the machine was; empty if it has ended and waits to be
    reaped. None if nobody may know."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[_STARTED_FIELD]
