"""The message about a checkpoint that cannot be restored: which one, which file, and the ways out."""

from __future__ import annotations

from minirt.errors import CorruptCheckpointError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.wording import given

NO_OLDER_CHECKPOINT = "there is no older one"


def cannot_restore(
    error: CorruptCheckpointError, checkpoint_id: int, fallback: str | None
) -> CorruptCheckpointError:
    """The error as one of this checkpoint, with what can be done; `fallback` unless it is done anyway."""
    ways_out = [] if fallback is None else [fallback]
    if CheckpointPaths.is_in_flight(error.path):
        ways_out.append(
            "to restore it without its in-flight records, which are then lost: "
            f"{given('ignore_in_flight_data_of', checkpoint_id)}"
        )
    advice = f" ({'; '.join(ways_out)})" if ways_out else ""
    return CorruptCheckpointError(
        f"checkpoint {checkpoint_id} cannot be restored, {error.message}{advice}", error.path
    )


def fallback_to(path: str | None) -> str:
    """How to start from the next older checkpoint; `path` is its folder, where that is known."""
    fallback = given("allow_restore_fallback", True)
    options = fallback if path is None else f"{fallback} or {given('restore', path)}"
    return f"to start from the next older one, and produce later output again: {options}"
