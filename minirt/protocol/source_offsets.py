"""How far sources are, from the snapshots of their subtasks to the sources themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """How far one subtask of a source is in its splits, by their ids: of sources that want to know."""

    uid: str
    offsets: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TellSources:
    """Tell sources how much of what they have read is part of a complete checkpoint."""

    checkpoint_id: int
    offsets: tuple[SourceOffsets, ...]


@dataclass(frozen=True, slots=True)
class SourcesTold:
    """All sources have taken it in."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class SourcesNotTold:
    """A source could not take it in; a JobFailedError says that the job must end."""

    checkpoint_id: int
    error: Exception
