"""`top_n`: the first records of each key in an order by columns, each with its rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.column_keys import check_key_type
from minirt.data.hashing import U64
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import (
    Form,
    Gathering,
    OperatorSpec,
    Site,
    StateDealing,
    Thinning,
)
from minirt.operators.common.aggregation import own_groups
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.checks import check_column
from minirt.operators.common.columns import to_columns
from minirt.operators.common.held_for import check_use, held_for
from minirt.operators.common.held_runs import MANY_RECORDS, HeldRuns
from minirt.operators.common.join_columns import SideColumns, simple_schema
from minirt.operators.common.ranking import (
    Direction,
    FirstOfBatch,
    Ranked,
    check_order,
    in_ranks,
)
from minirt.state.key_index import KeyIndex
from minirt.state.run_sections import Unpacked
from minirt.state.runs import Places, Run, Times, candidates, sorted_run, taken
from minirt.state.sections import Section
from minirt.state.stored import GIVEN_OUT, RANKED

_AT = "\x1fat"
"""The column with the event time of a record that is held; null without one."""
_HELD, _GONE = 1, 0
"""Until when a record is held: it goes only once others have taken its place."""
_LAST = 1 << 62


@dataclass(frozen=True, slots=True)
class TopNSpec(OperatorSpec):
    """Gives out each record that is among the first `n` of its key, whenever its rank has changed."""

    kind: ClassVar = "top_n"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.COLUMNS
    gathers: ClassVar = Gathering(MANY_RECORDS)
    repeats_batches: ClassVar = True

    n: int
    by: tuple[tuple[str, Direction], ...]
    rank: str = "rank"
    """The column of the result that says which of its key a record is, from 1 on."""

    @property
    def details(self) -> str:
        order = ", ".join(f"{column} {direction}" for column, direction in self.by)
        return f", {self.n} by {order}"

    @property
    def use(self) -> str:
        """What records are held for."""
        return f"the first{self.details[1:]}"

    def check(self, site: Site) -> None:
        [key] = site.keys
        if key is None or not key.columns:
            raise ConfigurationError(
                f"{site.label}: top_n goes by key columns; name them, key_by('column'), after a map that "
                "computes the column if need be"
            )
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise ConfigurationError(
                f"{site.label}: n must be a whole number above 0, got {self.n!r}"
            )
        if not self.by:
            raise ConfigurationError(f"{site.label}: name at least one column, by='...'")
        for column, direction in self.by:
            if direction not in get_args(Direction):
                raise ConfigurationError(
                    f"{site.label}: the order by {column!r} is "
                    f"{' or '.join(map(repr, get_args(Direction)))}, not {direction!r}"
                )
            check_column(column, site.schema, site.label)
            if site.schema is not None:
                check_order(column, site.schema.field(column).type, site.label)
        if not isinstance(self.rank, str) or not self.rank:
            raise ConfigurationError(
                f"{site.label}: rank is the name of a column, not {self.rank!r}"
            )
        if site.schema is not None and self.rank in site.schema.names:
            raise ConfigurationError(
                f"{site.label}: two columns would be called {self.rank!r}; say rank='...'"
            )

    def output_schema(self, site: Site) -> pa.Schema | None:
        if site.schema is None:
            return None
        return simple_schema(site.schema).append(pa.field(self.rank, pa.int64()))

    def thinning(self, key: KeySelector) -> Thinning:
        return FirstOfBatch(self.n, self.by, key.columns)

    def build(self, ctx: OperatorContext) -> Operator:
        return TopNOperator(ctx, self)


@dataclass(frozen=True, slots=True)
class _Rivals:
    """The records of the keys in a batch: held ones, by run, and behind them the new ones."""

    held: Sequence[tuple[Run, Places]]
    new: pa.RecordBatch

    def records(self, places: Places) -> pa.RecordBatch:
        """The records at these places among all. Only those are picked from the runs that hold them."""
        parts, rows = list[pa.RecordBatch](), np.empty(len(places), np.intp)
        begin, picked = 0, 0
        for run, at in self.held:
            mine = np.flatnonzero((places >= begin) & (places < begin + len(at)))
            if len(mine):
                parts.append(run.records(at[places[mine] - begin]))
                rows[mine] = np.arange(picked, picked + len(mine))
                picked += len(mine)
            begin += len(at)
        is_new = places >= begin
        rows[is_new] = places[is_new] - begin + picked
        return taken(pa.concat_batches([*parts, self.new]) if parts else self.new, rows)


class TopNOperator(Operator):
    """Holds the first `n` records of each key in runs, as joins hold theirs.

    Those of the keys of a batch are looked up and ranked together with the batch. Records are numbered as
    they come, which tells equal ones apart.
    """

    least_piece: ClassVar = MANY_RECORDS

    def __init__(self, ctx: OperatorContext, spec: TopNSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._columns = SideColumns("input", ctx.keys[0].columns, ctx.label)
        self._ranked_by = list(
            dict.fromkeys((*ctx.keys[0].columns, *(name for name, _ in spec.by)))
        )
        self._held = HeldRuns(ctx, RANKED, GIVEN_OUT, flagged=True)
        self._next = 1
        self._counted = 0, 0

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        self._columns.of_rows |= isinstance(batch, Rows)
        new = self._with_value(self._laid_out(to_columns(batch, self.ctx.label)))
        if not new.num_rows:
            return
        hashes = self._columns.hashes(new)
        numbers = np.arange(self._next, self._next + new.num_rows)
        self._next += new.num_rows
        found = [*self._rivals(np.unique(hashes))]
        held = sum(len(at) for _, at in found)
        names = self._ranked_by
        table = pa.concat_batches(
            [*(run.records(at, names) for run, at in found), new.select(names)]
        )
        all_hashes = np.concatenate([*(run.hashes[at] for run, at in found), hashes])
        all_numbers = np.concatenate([*(run.times[at] for run, at in found), numbers])
        ranked = self._ranked(table, all_hashes, all_numbers, held)
        is_new = ranked.order >= held
        first = ranked.ranks < self._spec.n
        self._emit(_Rivals(found, new), ranked, is_new, first)
        self._let_go(found, ranked.order[~first & ~is_new])
        kept = np.sort(ranked.order[first & is_new]) - held
        if len(kept):
            self._hold(taken(new, kept), hashes[kept], numbers[kept])
        self._count()

    def _laid_out(self, columns: Columns) -> pa.RecordBatch:
        """The records with all columns known so far, and their event times as one of them."""
        table, times = columns.table, columns.timestamps
        for column, _ in self._spec.by:
            if column not in table.schema.names:
                raise UserCodeError(
                    f"operator {self.ctx.label}: a batch has no column {column!r}, by which records are "
                    f"ranked, only {', '.join(table.schema.names)}"
                )
        if self._spec.rank in table.schema.names:
            raise UserCodeError(
                f"operator {self.ctx.label}: two columns would be called {self._spec.rank!r}; "
                "say rank='...'"
            )
        at = pa.nulls(len(table), pa.int64()) if times is None else pa.array(times)
        before = self._columns.schema
        table = self._columns.fitting(table.append_column(_AT, at))
        if before is None or not before.equals(self._columns.schema):
            for column, _ in self._spec.by:
                try:
                    check_order(column, table.schema.field(column).type, self.ctx.label)
                except ConfigurationError as error:
                    raise UserCodeError(f"operator {error}") from error
            for column in self.ctx.keys[0].columns:
                problem = check_key_type(table.schema.field(column).type)
                if problem is not None:
                    raise UserCodeError(
                        f"operator {self.ctx.label}: key column {column!r}: {problem}"
                    )
            self._held.change_tables(self._columns.conform)
        return table

    def _with_value(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Records without a value to go by have no rank."""
        for column, _ in self._spec.by:
            values = table.column(column)
            missing = values.is_null(nan_is_null=True)
            if pc.any(missing).as_py():
                table = taken(table, np.flatnonzero(~missing.to_numpy(zero_copy_only=False)))
        return table

    def _rivals(self, hashes: U64) -> Iterator[tuple[Run, Places]]:
        """The records that are held of keys with these hashes, run by run."""
        first, last = np.zeros(len(hashes), np.int64), np.full(len(hashes), _LAST)
        for run in self._held.runs.runs:
            for _, places in candidates(hashes, first, last, run):
                places = places[run.until[places] > _GONE]
                if len(places):
                    yield run, places

    def _slots(self, table: pa.RecordBatch, hashes: U64, held: int) -> npt.NDArray[np.intp]:
        """The place of each record's key. The records behind the first `held` are new: keys come in the
        order of these, however the others are kept."""
        keys = [table.column(name) for name in self.ctx.keys[0].columns]
        index = KeyIndex([array.type for array in keys])
        of_new = index.slots([array.slice(held) for array in keys], hashes[held:])
        of_held = index.slots([array.slice(0, held) for array in keys], hashes[:held])
        return np.concatenate([of_held, of_new])

    def _ranked(self, table: pa.RecordBatch, hashes: U64, numbers: Times, held: int) -> Ranked:
        slots = self._slots(table, hashes, held)
        by = {column: table.column(column) for column, _ in self._spec.by}
        return in_ranks(slots, self._spec.by, by, numbers)

    # Results.

    def _emit(
        self,
        rivals: _Rivals,
        ranked: Ranked,
        is_new: npt.NDArray[np.bool_],
        first: npt.NDArray[np.bool_],
    ) -> None:
        """Give out what has come in, and what has moved down for it."""
        # The new ones up to each place, less those of other keys, are those ahead of it.
        ahead = np.cumsum(is_new)
        begins = np.flatnonzero(ranked.ranks == 0)
        counts = np.diff(np.r_[begins, len(ahead)])
        before: Places = np.repeat(ahead[begins] - is_new[begins], counts)
        places = np.flatnonzero(first & (ahead > before))
        if not len(places):
            return
        rows = rivals.records(ranked.order[places])
        times = rows.column(_AT)
        rows = rows.drop_columns([_AT])
        rows = rows.append_column(self._spec.rank, pa.array(ranked.ranks[places] + 1))
        stamps = None
        if not times.null_count:
            stamps = _times_of_change(times.to_numpy(), ranked.slots[places], is_new[places])
        self.ctx.emit(Columns(rows, stamps))

    # State.

    def _hold(self, table: pa.RecordBatch, hashes: U64, numbers: Times) -> None:
        until, done = np.full(len(numbers), _HELD), np.zeros(len(numbers), np.bool_)
        run = sorted_run(table, hashes, numbers, until, done)
        self._held.runs.add(run, _GONE, only_done=False)

    def _let_go(self, found: Sequence[tuple[Run, Places]], beaten: Places) -> None:
        """Forget those of the held records that are none of the first; places are among all found."""
        begin = 0
        beaten = np.sort(beaten)
        touched: list[Run] = []
        for run, places in found:
            first, last = np.searchsorted(beaten, (begin, begin + len(places)))
            if first < last:
                gone = places[beaten[first:last] - begin]
                run.until[gone], run.done[gone] = _GONE, True
                if run not in touched:
                    touched.append(run)
            begin += len(places)
        for run in touched:
            self._held.runs.let_go(run, _GONE)

    def _count(self) -> None:
        metrics, runs, (records, size) = self.ctx.metrics, self._held.runs, self._counted
        self._counted = len(runs), runs.bytes
        metrics.waiting_records += self._counted[0] - records
        metrics.waiting_bytes += self._counted[1] - size

    def open(self) -> None:
        self._next = 1 + max((run.last for run in self._held.runs.runs), default=0)
        self._count()

    def snapshot(self) -> Mapping[str, Section]:
        some = len(self._held.runs) > 0
        return dict(self._held.snapshot()) | held_for(self._spec.use, some=some)

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return self._held.builds_on()

    def on_stored(self, path: str) -> None:
        self._held.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        check_use(sections, self._spec.use, self.ctx.label)
        self._held.load(sections, self._run_of)
        groups = own_groups(self.ctx, exact=exact)
        self._held.take_over(sections, groups, told=True)
        for run in self._held.runs.runs:
            run.until = np.where(run.done, _GONE, _HELD)

    def _run_of(self, stored: Unpacked) -> Run:
        before = self._columns.schema
        table = self._columns.fitting(stored.table)
        if before is not None and not before.equals(self._columns.schema):
            self._held.change_tables(self._columns.conform)
        count = len(stored.times)
        until, done = np.full(count, _HELD), np.zeros(count, np.bool_)
        return sorted_run(table, self._columns.hashes(table), stored.times, until, done)


def _times_of_change(
    times: Times, slots: npt.NDArray[np.intp], is_new: npt.NDArray[np.bool_]
) -> Times:
    """By record, the event time of the newest of those that have made it what it is.

    These are the record itself, and new ones of its key that are ahead of it. Records of a key stand
    together.
    """
    least = np.iinfo(np.int64).min
    known, causes = np.unique(np.where(is_new, times, least), return_inverse=True)
    # So much further for each key that its records never see those of the keys before.
    of_key = np.cumsum(np.r_[0, slots[1:] != slots[:-1]]) * len(known)
    newest: Times = known[np.maximum.accumulate(of_key + causes) - of_key]
    return np.maximum(times, newest)
