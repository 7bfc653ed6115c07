"""The checkpoint modes: each one file, each one line in `MODES`."""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from minirt.errors import ConfigurationError
from minirt.modes.aligned import Aligned
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.modes.at_least_once import AtLeastOnce
from minirt.modes.chandy_lamport import ChandyLamport
from minirt.modes.communication_induced import CommunicationInduced
from minirt.modes.epoch import Epoch
from minirt.modes.unaligned import Unaligned
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import CheckpointMode, may_overlap
from minirt.protocol.families import HasFamily, TakesLocalSnapshots
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.topology import InFlight, Topology
from minirt.wording import given, named

MODES: dict[str, CheckpointMode] = {
    "aligned": Aligned(),
    "aligned_with_timeout": AlignedWithTimeout(),
    "at_least_once": AtLeastOnce(),
    "chandy_lamport": ChandyLamport(),
    "communication_induced": CommunicationInduced(),
    "epoch": Epoch(),
    "unaligned": Unaligned(),
    "uncoordinated": Uncoordinated(),
}

DEFAULT_MODE = "aligned"
"""What the one checkpoint at the end of a job without checkpointing uses, and every job by default."""

ENTRY_POINT_GROUP = "minirt.modes"
"""Other packages add a mode under this group: `name = "package.module:Class"`."""


def find_mode(
    mode: str | CheckpointMode, expires_after_s: float = float("inf"), max_concurrent: int = 1
) -> CheckpointMode:
    """The mode of that name, built in or from an entry point; a mode object is returned as it is.

    Raises ConfigurationError if there is none, naming those that there are, if it has a timeout
    that no checkpoint reaches, as each is given up after `expires_after_s`, and if it takes one checkpoint
    at a time where several are wanted.
    """
    found = _named(mode) if isinstance(mode, str) else _checked(mode)
    if max_concurrent > 1 and not may_overlap(found):
        overlapping = ", ".join(sorted(name for name, one in MODES.items() if may_overlap(one)))
        raise ConfigurationError(
            f"mode {found.name} takes one checkpoint at a time, and "
            f"{named('checkpointing.max_concurrent')} is {max_concurrent}: leave it out, or use a "
            f"mode whose barriers stay in their place: {overlapping}"
        )
    timeout_s = found.timeout_s if isinstance(found, AlignedWithTimeout) else None
    if timeout_s is not None and timeout_s >= expires_after_s:
        raise ConfigurationError(
            f"the timeout of mode {found.name} ({timeout_s:g} s) never comes: the timeout of Checkpointing "
            f"gives each checkpoint up after {expires_after_s:g} s"
        )
    return found


class HasInterval(Protocol):
    """What a mode is told of the job's checkpoints."""

    @property
    def interval_s(self) -> float:
        """From one to the next."""


def local_snapshots(
    mode: CheckpointMode, checkpointing: HasInterval | None
) -> LocalSnapshots | None:
    """When subtasks take snapshots by their own clocks; None in the coordinated family."""
    if checkpointing is None or not isinstance(mode, TakesLocalSnapshots):
        return None
    return mode.local_snapshots(checkpointing.interval_s)


def check_edges(mode: CheckpointMode, topology: Topology) -> None:
    """Raise ConfigurationError for a job that the mode cannot take checkpoints of, naming the edge.

    Broadcast state is the same in all subtasks at a checkpoint with barriers. Snapshots that each takes by
    its own clock are of different moments.
    """
    if not isinstance(mode, TakesLocalSnapshots):
        return
    for edge in topology.links:
        if edge.in_flight is InFlight.ONE_COPY and not edge.capturable:
            raise ConfigurationError(
                f"mode {mode.name} cannot take checkpoints of {edge.target_uid}, which keeps "
                f"broadcast state of what comes over the edge {edge.key!r}: its subtasks must have "
                "seen the same at a checkpoint, and take snapshots at different moments in this "
                f"mode. Use {given('checkpointing.mode', 'unaligned')}"
            )


def same_mode(one: CheckpointMode, other: CheckpointMode) -> bool:
    """Whether two mode objects order the same: of one class, with the same options."""
    if type(one) is not type(other):
        return False
    return one == other or getattr(one, "__dict__", one) == getattr(other, "__dict__", other)


def check_name(mode: str) -> EntryPoint | None:
    """Return the entry point of the mode of this name; None for a built-in one.

    Raises ConfigurationError if there is no such mode, naming those that there are.
    """
    name = mode.replace("-", "_")
    if name in MODES:
        return None
    added = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name in added:
        return added[name]
    known = sorted({*MODES, *added})
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigurationError(
        f"there is no checkpoint mode {mode!r}{hint}; known are {', '.join(known)}; a job has one, "
        "modes do not combine"
    )


def _named(mode: str) -> CheckpointMode:
    added = check_name(mode)
    return MODES[mode.replace("-", "_")] if added is None else _checked(added.load()())


def _checked(mode: CheckpointMode) -> CheckpointMode:
    missing = [
        part
        for part in ("name", "exactly_once", "on_arrived", "on_reached", "on_timer")
        if not hasattr(mode, part)
    ]
    if isinstance(mode, type) or missing:
        lack = "is a class, pass an instance" if isinstance(mode, type) else f"lacks {missing}"
        raise ConfigurationError(f"{mode!r} is no checkpoint mode: it {lack}")
    if isinstance(mode, TakesLocalSnapshots) and not isinstance(mode, HasFamily):
        raise ConfigurationError(
            f"mode {mode.name} has local_snapshots and no family, so nobody makes checkpoints of these; "
            "give it family(subtasks), see docs/writing-a-mode.md"
        )
    return mode
