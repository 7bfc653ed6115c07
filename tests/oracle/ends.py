"""The two ends of a job: sources that number what they give out, and a sink that commits to files."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import minirt as rt
from tests.oracle.board import Board
from tests.oracle.records import sequence_of, value_of

_BATCH = 16
_QUIET_BATCH = 1
_QUIET_EVERY = 64
"""A quiet lane has something to say at one of so many reads."""


class Numbered(rt.Source):
    """A split for each lane, without end until the board says stop.

    Where a lane then ends is written down once, so that whoever reads it again finds the same end.
    """

    interleave = True

    def __init__(
        self, lanes: Sequence[int], quiet: Iterable[int], board: Board, ends: Path
    ) -> None:
        self._lanes = lanes
        self._quiet = frozenset(quiet)
        self._board = board
        self._ends = ends

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(f"lane-{lane}", {"lane": lane}) for lane in self._lanes]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        self._board.reach("open_split")
        lane = split.info["lane"]
        end = self._ends / str(lane)
        return _NumberedReader(lane, lane in self._quiet, offset or 0, self._board, end)


class _NumberedReader(rt.SplitReader):
    """Its offset is the next sequence number."""

    def __init__(self, lane: int, quiet: bool, offset: int, board: Board, end: Path) -> None:
        self._lane = lane
        self._quiet = quiet
        self._board = board
        self._end_file = end
        self._end: int | None = None
        self._reads = 0
        self._end_min = offset + _BATCH
        """Of what comes behind the offset, a batch may have been given out in part before a restart."""
        self.offset = offset

    def read(self) -> list[int] | None:
        self._board.reach("read")
        self._reads += 1
        if self._end is None and self._board.stopping:
            self._end = _written_once(self._end_file, max(self.offset, self._end_min))
        if self._end is not None and self.offset >= self._end:
            return None
        stop = self.offset + self._due()
        if self._end is not None:
            stop = min(stop, self._end)
        values = [value_of(self._lane, sequence) for sequence in range(self.offset, stop)]
        self.offset = stop
        return values

    def _due(self) -> int:
        if not self._quiet or self._end is not None:
            return _BATCH
        return _QUIET_BATCH if self._reads % _QUIET_EVERY == 0 else 0


def _written_once(path: Path, number: int) -> int:
    """What the file says; it says `number` if this is the first call for it."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    draft.write_text(str(number))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    return int(path.read_text())


def ends_of_lanes(folder: Path) -> dict[int, int]:
    """How many values each lane has had."""
    return {
        int(path.name): int(path.read_text()) for path in folder.iterdir() if "." not in path.name
    }


def timestamp(value: int) -> int:
    """Event time: lanes advance side by side."""
    return sequence_of(value)


class FolderSink(rt.Sink):
    """A file for each handle, pending until a commit renames it."""

    def __init__(self, folder: Path, board: Board) -> None:
        self._folder = folder
        self._board = board

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        self._board.reach("open_writer")
        return _FolderWriter(self._folder, self._board)

    def commit(self, handles: Sequence[dict[str, Any]]) -> None:
        self._board.reach("commit")
        for handle in handles:
            final = self._folder / f"{handle['name']}.json"
            if not final.exists():
                os.rename(self._folder / f"{handle['name']}.pending", final)

    def read(self) -> list[Any]:
        """All that is committed."""
        return [
            record
            for file in self._folder.glob("*.json")
            for record in json.loads(file.read_text())
        ]


class _FolderWriter(rt.SinkWriter):
    def __init__(self, folder: Path, board: Board) -> None:
        self._folder = folder
        self._board = board
        self._records: list[Any] = []

    def write(self, batch: Any) -> None:
        self._board.reach("write")
        self._records += batch.rows().records

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        self._board.reach("prepare")
        records, self._records = self._records, []
        if not records:
            return rt.Prepared()
        name = uuid.uuid4().hex

        def finish() -> None:
            self._board.reach("finish")
            (self._folder / f"{name}.pending").write_text(json.dumps(records))

        return rt.Prepared([{"name": name}], finish)

    def close(self) -> None:
        self._board.reach("close")
