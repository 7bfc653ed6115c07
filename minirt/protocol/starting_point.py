"""What a generation starts from, in plain data: who reads which snapshots, in-flight data and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.redistribution import InFlightPlan
from minirt.protocol.restore import RestorePlan
from minirt.protocol.stored_watermarks import WatermarkPlan


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """A checkpoint, and the storage that it is in: its root, or None for the job's own."""

    root: str | None
    key: ManifestKey


SplitPlan = Mapping[SubtaskId, tuple[int, ...]]
"""The splits that each source subtask reads from the beginning, by their places in the source's plan."""


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Nothing restored, unless a checkpoint is given."""

    checkpoint: CheckpointLocation | None = None
    restore: RestorePlan = field(default_factory=dict)
    in_flight: InFlightPlan = field(default_factory=dict)
    watermarks: WatermarkPlan = field(default_factory=dict)
    splits: SplitPlan = field(default_factory=dict)


FROM_THE_BEGINNING = StartingPoint()
