"""One of the two streams of a join: its columns, and its records that wait for partners."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from minirt.operators.common.base import OperatorContext
from minirt.operators.common.join_columns import LEFT, RIGHT, SIDES, SideColumns
from minirt.state.runs import Places, Run, Runs

How = Literal["inner", "left", "right", "full", "semi", "anti"]


class Side:
    """One of the two streams: its columns, and its records that wait for partners."""

    def __init__(
        self, ctx: OperatorContext, number: int, how: How, known: pa.Schema | None
    ) -> None:
        self.number = number
        self.name = SIDES[number]
        self.keys = ctx.keys[number].columns
        self.columns = SideColumns(number, self.keys, ctx.label)
        self.runs = Runs(f"{ctx.generation}-{ctx.subtask}")
        self.loaded: list[tuple[Run, Places]] = []
        """Runs of one old subtask, as far as they are restored, and how each was stored."""
        one_sided = ("left", "full", "anti") if number == LEFT else ("right", "full")
        self.gives_alone = how in one_sided
        """Whether a record without any partner is a result."""
        self.once = number == LEFT and how in ("semi", "anti")
        """Whether the first partner of a record is all that matters."""
        self.only_keys = number == RIGHT and how in ("semi", "anti")
        """Whether results have nothing of its records."""
        if known is not None:
            self.columns.begin(
                pa.schema([known.field(k) for k in self.keys]) if self.only_keys else known
            )

    @property
    def flagged(self) -> bool:
        """Whether it must be known which of its records have had a partner."""
        return self.gives_alone or self.once

    def arrays_of(self, table: pa.RecordBatch) -> list[pa.Array]:
        return self.columns.key_arrays(table)

    def fitting(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The records with the columns of the side; those that wait get columns that are new, too."""
        if self.only_keys:
            missing = [key for key in self.keys if key not in table.schema.names]
            table = table if missing else table.select(list(self.keys))
        before = self.columns.schema
        table = self.columns.fitting(table)
        if before is not None and not before.equals(self.columns.schema):
            for run in self.runs.runs:
                run.table = self.columns.conform(run.table)
        return table
