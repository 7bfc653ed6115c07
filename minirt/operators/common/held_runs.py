"""Records that an operator holds in sorted runs, and how snapshots store them.

A run is stored once. Which of its records are done is in every snapshot, one bit for each, unless nobody
needs to know. Runs may be in older files than the bits: these are in the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from minirt.operators.common.base import OperatorContext
from minirt.state.run_sections import Unpacked, pack_done, pack_run, unpack_done, unpack_run
from minirt.state.runs import Places, Run, Runs, Times, in_rows
from minirt.state.sections import Section

MANY_RECORDS = 4096
"""All runs are searched, whatever the number of records that are looked for: so let them be many."""


class HeldRuns:
    """`kind` and `flags` begin the names of the sections with the records, and with what is done.

    `flagged` says that this is stored, and `with_until` that a run does not tell by its times until when
    its records wait.
    """

    def __init__(
        self,
        ctx: OperatorContext,
        kind: str,
        flags: str,
        *,
        flagged: bool,
        with_until: bool = False,
    ) -> None:
        self.runs = Runs(f"{ctx.generation}-{ctx.subtask}")
        self._kind = kind
        self._flags = flags
        self._flagged = flagged
        self._with_until = with_until
        self._max_parallelism = ctx.max_parallelism
        self._loaded: list[Run] = []
        """Runs of one old subtask, as far as they are restored."""
        self._handed_over: list[Run] = []

    def change_tables(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Give the records of all runs other columns."""
        for run in (*self.runs.runs, *self._loaded):
            run.table = change(run.table)

    def snapshot(self) -> Iterator[tuple[str, Section]]:
        self._handed_over = []
        for run in self.runs.runs:
            if run.path is None:
                until = in_rows(run.rows, run.until) if self._with_until else None
                section = partial(_packed, run.table, run.rows, run.times, until)
                yield self._kind + run.name, section
                self._handed_over.append(run)
            if self._flagged:
                yield self._flags + run.name, pack_done(in_rows(run.rows, run.done))

    def builds_on(self) -> dict[str, list[str]]:
        return {self._kind + run.name: [run.path] for run in self.runs.runs if run.path is not None}

    def on_stored(self, path: str) -> None:
        for run in self._handed_over:
            run.path = path
        self._handed_over = []

    def load(self, sections: Mapping[str, bytes], run_of: Callable[[Unpacked], Run]) -> None:
        """Read the runs of a file."""
        self._handed_over = []
        for name, section in sections.items():
            if not name.startswith(self._kind):
                continue
            run = run_of(unpack_run(section))
            run.name = name.removeprefix(self._kind)
            self._loaded.append(run)
            self._handed_over.append(run)

    def take_over(
        self, sections: Mapping[str, bytes], groups: range | None, *, told: bool = False
    ) -> None:
        """Hold the runs that were loaded, with what this file says of them; it is the newest.

        `told` takes over only those of which it says what is done: then it may also be an older file.
        Nothing is left of key groups that are not one's own.
        """
        loaded, self._loaded = self._loaded, []
        for run in loaded:
            flags = sections.get(self._flags + run.name)
            if flags is None and told:
                self._loaded.append(run)
                continue
            if flags is not None:
                run.done = unpack_done(flags, len(run))[run.rows]
            own: Run | None = run
            if groups is not None:
                of = run.hashes % np.uint64(self._max_parallelism)
                mine = np.flatnonzero((of >= groups.start) & (of < groups.stop))
                own = run.take(mine) if len(mine) else None
            if own is not None:
                self.runs.restored(own)


def _packed(table: pa.RecordBatch, rows: Places, times: Times, until: Times | None) -> bytes:
    return pack_run(table, in_rows(rows, times), until)
