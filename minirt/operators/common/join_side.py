"""One of the two streams of a join: its columns, and its records that wait for partners."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from minirt.operators.common.base import OperatorContext
from minirt.operators.common.held_runs import HeldRuns
from minirt.operators.common.join_columns import LEFT, RIGHT, SIDES, SideColumns
from minirt.state.runs import Places, Run, Runs
from minirt.state.stored import GIVEN_OUT, JOINED

How = Literal["inner", "left", "right", "full", "semi", "anti"]


class Side:
    """One of the two streams: its columns, and its records that wait for partners."""

    def __init__(
        self,
        ctx: OperatorContext,
        number: int,
        how: How,
        known: pa.Schema | None,
        *,
        with_until: bool = False,
        waits_for_time: bool = False,
    ) -> None:
        """`with_until`: what waits does not tell by its times until when. `waits_for_time`: each record
        waits for the watermark, and is given out then."""
        self.number = number
        self.name = SIDES[number]
        self.keys = ctx.keys[number].columns
        self.columns = SideColumns(self.name, self.keys, ctx.label)
        one_sided = ("left", "full", "anti") if number == LEFT else ("right", "full")
        self.gives_alone = how in one_sided
        """Whether a record without any partner is a result."""
        self.once = number == LEFT and how in ("semi", "anti")
        """Whether the first partner of a record is all that matters."""
        self.only_keys = number == RIGHT and how in ("semi", "anti")
        """Whether results have nothing of its records."""
        self.flagged = self.gives_alone or self.once or waits_for_time
        """Whether it must be known which of its records were given out, or have had a partner."""
        sections = f"{JOINED}{self.name}/", f"{GIVEN_OUT}{self.name}/"
        self.held = HeldRuns(ctx, *sections, flagged=self.flagged, with_until=with_until)
        if known is not None:
            self.columns.begin(
                pa.schema([known.field(k) for k in self.keys]) if self.only_keys else known
            )

    @property
    def runs(self) -> Runs:
        """The records that wait."""
        return self.held.runs

    def arrays_of(self, table: pa.RecordBatch) -> list[pa.Array]:
        return self.columns.key_arrays(table)

    def keys_of(self, run: Run, places: Places) -> list[pa.Array]:
        """As `arrays_of`, of the records at these places."""
        return self.arrays_of(run.records(places, self.keys))

    @property
    def told_by_hash(self) -> bool:
        """Whether keys that have the same hash are equal: whole numbers are mixed, which never gives two
        of them one hash."""
        if len(self.keys) > 1 or self.columns.schema is None:
            return False
        return bool(pa.types.is_integer(self.columns.schema.field(self.keys[0]).type))

    def fitting(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The records with the columns of the side; those that wait get columns that are new, too."""
        if self.only_keys:
            missing = [key for key in self.keys if key not in table.schema.names]
            table = table if missing else table.select(list(self.keys))
        before = self.columns.schema
        table = self.columns.fitting(table)
        if before is not None and not before.equals(self.columns.schema):
            self.held.change_tables(self.columns.conform)
        return table
