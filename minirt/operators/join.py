"""`join`: pairs of records of two streams that have one key and lie near each other in event time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.errors import UnlikeTypesError
from minirt.data.hashing import U64
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.operators.common.aggregation import CHUNK_KEYS, own_groups
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.columns import to_columns
from minirt.operators.common.held_for import check_use, held_for
from minirt.operators.common.held_runs import MANY_RECORDS
from minirt.operators.common.join_bounds import JoinBounds
from minirt.operators.common.join_columns import (
    LEFT,
    RIGHT,
    JoinColumns,
    equal_keys,
    key_misfit,
    simple_schema,
)
from minirt.operators.common.join_side import How, Side
from minirt.protocol.key_groups import group_range
from minirt.state.event_times import EventTimes
from minirt.state.numbers import Mask
from minirt.state.run_sections import Unpacked
from minirt.state.runs import Places, Run, Times, candidates, sorted_run, taken
from minirt.state.sections import Section
from minirt.state.stored import EVENT_TIME

LATE_TAG = "late"
"""The side output that carries the records that came when their partners may be gone."""

_PAIRS_MIN = 1 << 14
"""So many pairs are given out without waiting for those of other runs."""


class Pairs(NamedTuple):
    """Places in a new run, and those of their partners in one that waits."""

    own: Places
    waiting: Run
    theirs: Places


@dataclass(frozen=True, slots=True)
class JoinSpec(OperatorSpec):
    """Joins two streams by key columns; `bounds` say which times partners have."""

    kind: ClassVar = "join"
    inputs: ClassVar = 2
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.COLUMNS
    needs_event_time: ClassVar = True

    bounds: JoinBounds
    how: How = "inner"
    suffix: str = "_right"
    columns: tuple[pa.Schema | None, pa.Schema | None] = (None, None)
    """Those of both sides, as far as they are known: a column whose type is not known is of type null."""

    @property
    def details(self) -> str:
        return f", {self.how}, {self.bounds.text}"

    @property
    def late_after_ms(self) -> int | None:
        return 0

    @property
    def use(self) -> str:
        """What records are held for. Those of another join are no use."""
        return f"{self.how} join, {self.bounds.text}"

    @property
    def right_alone(self) -> bool:
        """Whether a record of the right without any partner is a result."""
        return self.how in ("right", "full")

    def check(self, site: Site) -> None:
        if self.how not in get_args(How):
            raise ConfigurationError(
                f"{site.label}: how is one of {', '.join(get_args(How))}, not {self.how!r}"
            )
        if not isinstance(self.suffix, str) or not self.suffix:
            raise ConfigurationError(
                f"{site.label}: suffix is a non-empty str, not {self.suffix!r}"
            )
        keys = []
        for key in site.keys:
            if key is None or not key.columns:
                raise ConfigurationError(
                    f"{site.label}: joins go by key columns; name them in on=..., after a map that "
                    "computes the column if need be"
                )
            keys.append(key.columns)
        try:
            misfit = key_misfit(keys, site.schemas)
        except ConfigurationError as error:
            raise ConfigurationError(f"{site.label}: {error}") from error
        if misfit is not None:
            raise ConfigurationError(f"{site.label}: {misfit}")

    def side_output(self, tag: str, label: str) -> Form:
        if tag != LATE_TAG:
            raise ConfigurationError(
                f"{label}: joins have one side output, {LATE_TAG!r}, and no {tag!r}"
            )
        return Form.COLUMNS

    def output_schema(self, site: Site) -> pa.Schema | None:
        left, right = site.schemas
        if left is None or right is None:
            return None
        left, right = simple_schema(left), simple_schema(right)
        if self.how in ("semi", "anti"):
            return left
        keys = tuple(() if key is None else key.columns for key in site.keys)
        try:
            return JoinColumns(
                (keys[LEFT], keys[RIGHT]), self.suffix, right_alone=self.right_alone
            ).schema(left, right)
        except ConfigurationError as error:
            raise ConfigurationError(f"{site.label}: {error}") from error

    def build(self, ctx: OperatorContext) -> Operator:
        return JoinOperator(ctx, self)


class JoinOperator(Operator):
    """Looks for the partners of each record among those of the other side that wait, then lets it wait.

    A record waits until the watermark says that no partner can come. It is *late* if the watermark that
    its key has seen is not before it: its partners may be gone. That watermark is part of the state, as for
    windows.
    """

    least_piece: ClassVar = MANY_RECORDS

    with_until: ClassVar = False
    """Whether event times do not tell until when a record waits."""

    def __init__(self, ctx: OperatorContext, spec: JoinSpec) -> None:
        super().__init__(ctx)
        self._how = spec.how
        self._use = spec.use
        self._bounds = spec.bounds
        self._sides = self._side(spec, LEFT), self._side(spec, RIGHT)
        keys = self._sides[LEFT].keys, self._sides[RIGHT].keys
        self._columns = JoinColumns(keys, spec.suffix, right_alone=spec.right_alone)
        self._times = EventTimes(group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism))
        self._late = ctx.side(LATE_TAG)
        self._counted = 0, 0

    def _side(self, spec: JoinSpec, number: int) -> Side:
        known = spec.columns[number]
        return Side(self.ctx, number, spec.how, known, with_until=self.with_until)

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        side, columns = self._sides[input_index], to_columns(batch, self.ctx.label)
        side.columns.of_rows |= isinstance(batch, Rows)
        times = self._times_of(columns)
        table = side.fitting(columns.table)
        self._check_kinds()
        keys = side.arrays_of(table)
        hashes = side.columns.hashes(table)
        keyed, seen = self._with_key(keys), self._seen(hashes)
        until = self._until(side, times)
        on_time = until > seen if self.with_until else times > seen
        if not on_time.all():
            self.ctx.metrics.late_records += int(len(times) - np.count_nonzero(on_time))
            self._late(columns.where(~on_time))
        if not keyed.all() and side.gives_alone:
            alone = np.flatnonzero(on_time & ~keyed)
            self._emit_alone(side, taken(table, alone), times[alone], times[alone])
        places = np.flatnonzero(on_time & keyed)
        if len(places) < len(times):
            if not len(places):
                return
            table, hashes, times = taken(table, places), hashes[places], times[places]
            seen, until = seen[places], until[places]
        run = sorted_run(table, hashes, times, until, np.zeros(len(times), np.bool_))
        self._match(side, run)
        self._let_wait(side, run, seen[run.rows])
        self._count()

    def on_watermark(self, watermark: int) -> Iterator[None]:
        self.watermark = watermark
        self._times.advance(watermark)
        return self._free(self._over)

    def _times_of(self, columns: Columns) -> Times:
        if columns.timestamps is None:
            raise UserCodeError(
                f"operator {self.ctx.label}: joins need event time, but these records have no "
                "timestamps; give their source watermarks=..."
            )
        return columns.timestamps

    def _until(self, side: Side, times: Times) -> Times:
        """Until when records wait."""
        return self._bounds.partners(side.number, times)[1]

    @property
    def _over(self) -> int:
        """How far time has come for all records."""
        return self._times.least

    # Partners.

    def _match(self, side: Side, run: Run) -> None:
        """Give out the pairs of a new run with what waits on the other side."""
        other = self._sides[1 - side.number]
        first, last = self._bounds.partners(side.number, run.times)
        pairs: list[Pairs] = []
        for waiting in other.runs.runs:
            for own, theirs in candidates(run.hashes, first, last, waiting):
                found = self._partners(side, run, other, Pairs(own, waiting, theirs))
                if not len(found.own):
                    continue
                if self._how in ("semi", "anti"):
                    self._first_partners(side, run, found)
                    continue
                pairs.append(found)
                if sum(len(each.own) for each in pairs) >= _PAIRS_MIN:
                    self._give_pairs(side, run, pairs)
                    pairs = []
        if pairs:
            self._give_pairs(side, run, pairs)

    def _partners(self, side: Side, run: Run, other: Side, pairs: Pairs) -> Pairs:
        """Those of the candidates whose keys are equal."""
        if side.told_by_hash:
            return pairs
        own, waiting, theirs = pairs
        same = equal_keys(side.keys_of(run, own), other.keys_of(waiting, theirs))
        return pairs if same is None else Pairs(own[same], waiting, theirs[same])

    def _first_partners(self, side: Side, run: Run, pairs: Pairs) -> None:
        """Mark records of the left that have a partner by now; of a semi join, they are the results."""
        own, waiting, theirs = pairs
        lefts, places = (run, own) if side.number == LEFT else (waiting, theirs)
        new = np.flatnonzero(~lefts.done[places])
        distinct, at = np.unique(places[new], return_index=True)
        lefts.done[distinct] = True
        if self._how == "semi" and len(distinct):
            times = np.maximum(run.times[own], waiting.times[theirs])
            self._give(lefts.records(distinct), times[new][at])

    def _give_pairs(self, side: Side, run: Run, pairs: list[Pairs]) -> None:
        """Give out pairs from several runs that wait as one batch: what a batch costs is paid once."""
        other = self._sides[1 - side.number]
        own = np.concatenate([each.own for each in pairs])
        if side.flagged:
            run.done[own] = True
        if other.flagged:
            for each in pairs:
                each.waiting.done[each.theirs] = True
        theirs = pa.concat_batches([each.waiting.records(each.theirs) for each in pairs])
        of_theirs = np.concatenate([each.waiting.times[each.theirs] for each in pairs])
        rows = run.records(own), theirs
        left, right = rows if side.number == LEFT else rows[::-1]
        self._give(self._joined(left, right), np.maximum(run.times[own], of_theirs))

    def _let_wait(self, side: Side, run: Run, seen: Times) -> None:
        """Keep what may still have partners; give out what had none and can have none."""
        waits = run.until > seen
        if side.once:
            waits &= ~run.done
        if waits.all():
            self._add(side, run)
            return
        if side.gives_alone:
            self._emit_alone_of(side, run, np.flatnonzero(~waits & ~run.done))
        left = np.flatnonzero(waits)
        if len(left):
            self._add(side, run.take(left))

    def _add(self, side: Side, run: Run) -> None:
        side.runs.add(run, self._over, only_done=side.gives_alone)

    def _free(self, least: int) -> Iterator[None]:
        """Give out what has had no partner and can have none, in steps; then forget it."""
        for side in self._sides:
            for run in [run for run in side.runs.runs if run.over_from <= least]:
                yield from self._free_of(side, run, least)
        self._count()

    def _free_of(self, side: Side, run: Run, least: int) -> Iterator[None]:
        """As `_free`, of one run, as long as it is not part of another one, and of what is not done yet."""
        alone = np.flatnonzero((run.until <= least) & ~run.done) if side.gives_alone else ()
        for start in range(0, len(alone), CHUNK_KEYS):
            if run not in side.runs.runs:
                return
            piece = alone[start : start + CHUNK_KEYS]
            piece = piece[~run.done[piece]]
            run.done[piece] = True
            self._emit_alone_of(side, run, piece)
            yield
        if run in side.runs.runs:
            side.runs.let_go(run, least)
            yield

    # Results.

    def _emit_alone(self, side: Side, rows: pa.RecordBatch, times: Times, until: Times) -> None:
        """Give out records without partners, at the time at which that is certain."""
        if not len(times):
            return
        if self._how != "anti":
            rows = self._joined(*((rows, None) if side.number == LEFT else (None, rows)))
        self._give(rows, self._certain(times, until))

    def _emit_alone_of(self, side: Side, run: Run, places: Places) -> None:
        self._emit_alone(side, run.records(places), run.times[places], run.until[places])

    def _certain(self, times: Times, until: Times) -> Times:
        """The event time at which it is certain that records have no partner."""
        return np.maximum(times, until)

    def _give(self, rows: pa.RecordBatch, times: Times) -> None:
        self.ctx.emit(Columns(rows, times))

    def _joined(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> pa.RecordBatch:
        of_left, of_right = (side.columns.schema for side in self._sides)
        try:
            return self._columns.side_by_side(of_left, of_right, left, right)
        except (ConfigurationError, UnlikeTypesError, pa.ArrowException) as error:
            raise UserCodeError(f"operator {self.ctx.label}: {error}") from error

    # Keys and time.

    def _with_key(self, keys: list[pa.Array]) -> Mask:
        """Whether no part of the key is null: as in SQL, null equals nothing."""
        keyed = np.ones(len(keys[0]), np.bool_)
        for array in keys:
            if array.null_count:
                keyed &= ~array.is_null().to_numpy(zero_copy_only=False)
        return keyed

    def _seen(self, hashes: U64) -> Times:
        """The watermark that the key of each record has seen."""
        return self._times.of((hashes % np.uint64(self.ctx.max_parallelism)).astype(np.int64))

    def _check_kinds(self) -> None:
        left, right = (side.columns.schema for side in self._sides)
        if left is None or right is None:
            return
        try:
            misfit = key_misfit((self._sides[0].keys, self._sides[1].keys), (left, right))
        except ConfigurationError as error:
            misfit = str(error)
        if misfit is not None:
            raise UserCodeError(f"operator {self.ctx.label}: {misfit}")

    def _count(self) -> None:
        metrics, (records, size) = self.ctx.metrics, self._counted
        now = sum(len(s.runs) for s in self._sides), sum(s.runs.bytes for s in self._sides)
        metrics.waiting_records += now[0] - records
        metrics.waiting_bytes += now[1] - size
        self._counted = now

    # State.

    def snapshot(self) -> Mapping[str, Section]:
        sections: dict[str, Section] = {EVENT_TIME: self._times.snapshot()}
        for side in self._sides:
            sections |= side.held.snapshot()
        return sections | held_for(self._use, some=any(len(s.held.runs) for s in self._sides))

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return self._sides[LEFT].held.builds_on() | self._sides[RIGHT].held.builds_on()

    def on_stored(self, path: str) -> None:
        for side in self._sides:
            side.held.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        check_use(sections, self._use, self.ctx.label)
        for side in self._sides:
            side.held.load(sections, partial(self._run_of, side))
        if EVENT_TIME not in sections:
            return
        self._times.restore(sections[EVENT_TIME])
        for side in self._sides:
            side.held.take_over(sections, own_groups(self.ctx, exact=exact))

    def open(self) -> None:
        self._count()

    def _run_of(self, side: Side, stored: Unpacked) -> Run:
        table, times, until = stored
        table = side.fitting(table)
        if until is None or not self.with_until:
            until = self._until(side, times)
        hashes, done = side.columns.hashes(table), np.zeros(len(times), np.bool_)
        return sorted_run(table, hashes, times, until, done)
