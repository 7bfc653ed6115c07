"""A snapshot with barriers between its synchronous part and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minirt.protocol.barriers import Barrier
from minirt.protocol.manifest import Reference
from minirt.protocol.source_offsets import SourceOffsets
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.runtime.input.in_flight import Capture
from minirt.state.sections import Section


@dataclass(slots=True)
class Taken:
    """What it will be made of. Its synchronous part was over at `taken_at`, and it waits to be whole."""

    barrier: Barrier
    sections: Mapping[str, Section]
    references: Sequence[Reference]
    capture: Capture
    watermarks: SubtaskWatermarks
    offsets: SourceOffsets | None
    sync_s: float
    taken_at: float
