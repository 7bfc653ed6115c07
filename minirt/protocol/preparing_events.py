"""What the preparation of a generation orders (commands), and what it hears of that (events).

Each command is answered by one event, before the next command is given: by the event that is named with
it, by `Done`, or by `StepFailed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minirt.errors import CorruptCheckpointError
from minirt.protocol.manifest import GenerationClaim, Manifest, ManifestKey, SinkHandles

# Commands


@dataclass(frozen=True, slots=True)
class ClaimGeneration:
    """Start a new generation on storage, above all others. Answered by `GenerationClaimed`."""


@dataclass(frozen=True, slots=True)
class ListCheckpoints:
    """Tell what is in the storage at `root`, or in the job's own. Answered by `CheckpointsListed`."""

    root: str | None = None


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """Read a manifest and look whether all files of the checkpoint are there.

    Files of in-flight data do not matter unless `in_flight`. Answered by `CheckpointRead` or
    `CheckpointDamaged`.
    """

    root: str | None
    key: ManifestKey
    in_flight: bool = True


@dataclass(frozen=True, slots=True)
class LookForDrain:
    """Tell whether the drain that took a checkpoint is over. Answered by `DrainFound`."""

    key: ManifestKey


@dataclass(frozen=True, slots=True)
class PlanSplits:
    """Have a source plan its splits, and keep them. Answered by `SplitsPlanned`."""

    uid: str


@dataclass(frozen=True, slots=True)
class ResolveGeneration:
    """Put on record what the generation restores. Answered by `GenerationResolved`."""

    generation: int
    base: ManifestKey | None


@dataclass(frozen=True, slots=True)
class BuildOn:
    """Keep the files of the restored checkpoint until the generation has one of its own."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class EndDrain:
    """Put on record that the drain which took the checkpoint is over."""

    key: ManifestKey


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove what crashed writers of earlier generations have left half written."""


@dataclass(frozen=True, slots=True)
class OpenCommitter:
    """Have a sink commit for this generation from now on, and for no earlier one."""

    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class CommitRestored:
    """Have a sink publish what the restored checkpoint holds of it, once more."""

    uid: str
    held: tuple[SinkHandles, ...]


@dataclass(frozen=True, slots=True)
class DiscardUncommitted:
    """Have a sink remove what older generations left pending, but for these handles."""

    uid: str
    handles: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the user something that is not to be missed."""

    text: str


PreparingCommand = (
    ClaimGeneration
    | ListCheckpoints
    | ReadCheckpoint
    | LookForDrain
    | PlanSplits
    | ResolveGeneration
    | BuildOn
    | EndDrain
    | Sweep
    | OpenCommitter
    | CommitRestored
    | DiscardUncommitted
    | Warn
)


# Events


@dataclass(frozen=True, slots=True)
class GenerationClaimed:
    generation: int


@dataclass(frozen=True, slots=True)
class CheckpointsListed:
    """What is in a storage: `root` as messages show it; `own` if it is the job's own after all."""

    keys: tuple[ManifestKey, ...]
    claims: tuple[GenerationClaim, ...]
    root: str
    own: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointRead:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CheckpointDamaged:
    """The checkpoint cannot be restored; `deleted` if its manifest is gone."""

    error: CorruptCheckpointError
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class DrainFound:
    over: bool


@dataclass(frozen=True, slots=True)
class SplitsPlanned:
    count: int


@dataclass(frozen=True, slots=True)
class GenerationResolved:
    """`current` unless another coordinator has claimed a later generation."""

    current: bool


@dataclass(frozen=True, slots=True)
class Done:
    """A command was carried out, and there is nothing to tell of it."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A command could not be carried out."""

    error: Exception


PreparingEvent = (
    GenerationClaimed
    | CheckpointsListed
    | CheckpointRead
    | CheckpointDamaged
    | DrainFound
    | SplitsPlanned
    | GenerationResolved
    | Done
    | StepFailed
)
