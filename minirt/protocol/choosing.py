"""Which checkpoint a generation starts from: the one that is asked for, or an older one if it is damaged.

Orphans do not count, unless one is asked for by its path. A checkpoint that was deleted since it was
listed is passed over. One that is damaged is passed over as well if the user allows that; otherwise the
job does not start, and its error says which ways out there are. If all are damaged, it never starts from
nothing: that would be to lose everything in silence.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from minirt.errors import ConfigurationError, CorruptCheckpointError, ProtocolError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.damage import NO_OLDER_CHECKPOINT, cannot_restore, fallback_to
from minirt.protocol.manifest import (
    InFlightRef,
    Manifest,
    ManifestKey,
    restore_candidates,
)
from minirt.protocol.preparing_events import (
    CheckpointDamaged,
    CheckpointRead,
    CheckpointsListed,
    DrainFound,
    ListCheckpoints,
    LookForDrain,
    PreparingCommand,
    PreparingEvent,
    ReadCheckpoint,
)
from minirt.protocol.starting_point import CheckpointLocation

T = TypeVar("T")

Steps = Generator[PreparingCommand, PreparingEvent, T]
"""A part of a preparation: gives commands, is sent the answer to each, and comes to a result."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which checkpoint is wanted, and what may be done if it is damaged.

    `which` is "latest", a checkpoint id, or a path: of a manifest, of a checkpoint's folder, or of a
    storage, for its latest; of the job's own storage or of a copy elsewhere.
    """

    which: str | int = "latest"
    allow_fallback: bool = False
    """Let the next older checkpoint stand in for a damaged one."""
    damaged: Mapping[ManifestKey, CorruptCheckpointError] = field(default_factory=dict)
    """What is wrong with the checkpoints that subtasks found damaged while they read them."""
    without_in_flight_of: int | None = None
    """The id of a checkpoint whose in-flight data is left out, whether it is there or not."""


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint to start from."""

    manifest: Manifest
    location: CheckpointLocation
    skipped: tuple[CorruptCheckpointError, ...] = ()
    """What is wrong with the newer checkpoints that were passed over."""
    ignored: tuple[InFlightRef, ...] = ()
    """The in-flight data that was left out of the manifest."""
    drains: bool = False
    """Whether it was taken by a drain that is not over, and nobody asked for just this checkpoint."""

    @property
    def base(self) -> ManifestKey | None:
        """What to resolve the generation with; None if it comes from another storage."""
        return self.location.key if self.location.root is None else None


def ask(command: PreparingCommand, answer: type[T]) -> Steps[T]:
    """Give a command to which there is one kind of answer."""
    event = yield command
    if not isinstance(event, answer):
        raise ProtocolError(f"{event} does not answer {command}")
    return event


def choose(choice: Choice) -> Steps[RestorePoint | None]:
    """The checkpoint to start from; None if "latest" finds none at all.

    Raises ConfigurationError if there is no such checkpoint.
    """
    which, (root, key) = choice.which, _located(choice.which)
    listed = yield from ask(ListCheckpoints(root), CheckpointsListed)
    if not isinstance(which, str):
        key = _key_of(which, listed)
    candidates = restore_candidates(listed.keys, listed.claims)
    if key is not None:
        if key not in listed.keys:
            raise ConfigurationError(f"restore: no checkpoint {which!r} in {_described(listed)}")
        candidates = [key, *(older for older in candidates if older < key)]
    elif not candidates and which != "latest":
        raise ConfigurationError(
            f'restore: no checkpoint at {which!r}; "latest" is the newest of the job, if there is any'
        )
    if not candidates:
        return None
    point = yield from _newest_whole(candidates, listed, None if listed.own else root, choice)
    if point is None and which == "latest":
        return None
    if point is None:
        raise ConfigurationError(f"restore: {which!r} was deleted just now")
    if key is not None or point.base is None or point.manifest.drain is None:
        return point
    drain = yield from ask(LookForDrain(point.base), DrainFound)
    return replace(point, drains=not drain.over)


def _newest_whole(
    candidates: Sequence[ManifestKey],
    listed: CheckpointsListed,
    root: str | None,
    choice: Choice,
) -> Steps[RestorePoint | None]:
    skipped: list[CorruptCheckpointError] = []
    deleted = 0
    for index, key in enumerate(candidates):
        if key in choice.damaged:
            skipped.append(choice.damaged[key])
            continue
        in_flight = key.checkpoint_id != choice.without_in_flight_of
        answer = yield ReadCheckpoint(root, key, in_flight)
        match answer:
            case CheckpointRead(manifest):
                ignored = () if in_flight else manifest.in_flight
                kept = replace(manifest, in_flight=()) if ignored else manifest
                location = CheckpointLocation(root, key)
                return RestorePoint(kept, location, tuple(skipped), ignored)
            case CheckpointDamaged(deleted=True):
                deleted += 1
            case CheckpointDamaged(error):
                fallback = _fallback(listed, candidates[index + 1 :])
                if not choice.allow_fallback:
                    raise cannot_restore(error, key.checkpoint_id, fallback) from error
                skipped.append(cannot_restore(error, key.checkpoint_id, None))
            case _:
                raise ProtocolError(f"{answer} does not tell of {key}")
    if deleted == len(candidates):  # Since they were listed.
        return None
    newest = f"; the newest: {skipped[0]}" if skipped else ""
    raise CorruptCheckpointError(
        f"none of {len(candidates)} checkpoints can be restored{newest}",
        _full_path(listed, CheckpointPaths.MANIFESTS),
    )


def _fallback(listed: CheckpointsListed, older: Sequence[ManifestKey]) -> str:
    if not older:
        return NO_OLDER_CHECKPOINT
    return fallback_to(_full_path(listed, CheckpointPaths.folder(older[0]).rstrip("/")))


def _located(which: str | int) -> tuple[str | None, ManifestKey | None]:
    """The root of the storage that a path points into, and the checkpoint; None for its latest."""
    if not isinstance(which, str) or which == "latest":
        return None, None
    path = which.rstrip("/")
    head, _, name = path.rpartition("/")
    if (key := CheckpointPaths.parse_folder(name)) is not None:
        return head or None, key
    if (key := CheckpointPaths.parse_manifest("/".join(path.split("/")[-2:]))) is not None:
        return head.rpartition("/")[0] or None, key
    return path or None, None


def _key_of(checkpoint_id: int, listed: CheckpointsListed) -> ManifestKey:
    matching = [key for key in listed.keys if key.checkpoint_id == checkpoint_id]
    counting = restore_candidates(matching, listed.claims)
    if counting:
        return counting[0]
    if matching:
        path = _full_path(listed, CheckpointPaths.folder(matching[-1]).rstrip("/"))
        raise ConfigurationError(
            f"restore: checkpoint {checkpoint_id} was left behind when the job restarted from an"
            f' older one, its output was not committed since; to restore it all the same: "{path}"'
        )
    raise ConfigurationError(f"restore: no checkpoint {checkpoint_id} in {_described(listed)}")


def _described(listed: CheckpointsListed) -> str:
    ids = ", ".join(str(key.checkpoint_id) for key in listed.keys[-20:])
    return f"{listed.root}, which holds {ids or 'none'}"


def _full_path(listed: CheckpointsListed, path: str) -> str:
    return f"{listed.root.rstrip('/')}/{path}"
