"""`join_as_of`: each record with the version of its key that a table had at its event time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Rows
from minirt.data.hashing import U64
from minirt.errors import ConfigurationError
from minirt.graph.operator_spec import Site
from minirt.operators.common.aggregation import CHUNK_KEYS
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.columns import to_columns
from minirt.operators.common.join_bounds import FIRST_TIME, LAST_TIME, JoinBounds
from minirt.operators.common.join_columns import LEFT, RIGHT, equal_keys
from minirt.operators.common.join_side import Side
from minirt.operators.join import JoinOperator, JoinSpec
from minirt.state.numbers import Mask
from minirt.state.runs import Places, Run, Times, newest, next_after, sorted_run, taken

HOWS = ("inner", "left")

NEVER = -(2**62)
"""A time before all others, of which a lateness can be taken away."""


@dataclass(frozen=True, slots=True)
class AsOf(JoinBounds):
    """The partner of a record of the left is the newest version that is not newer, nor older by more than
    the tolerance.

    A record of the left waits for the watermark to reach its time. A version waits until it is known
    when the next one begins, and then until that; with a tolerance no longer than that. With a lateness
    it waits for so much longer, as records of the left may come so far behind the watermark.
    """

    tolerance_ms: int | None
    lateness_ms: int = 0

    def partners(self, side: int, times: Times) -> tuple[Times, Times]:
        if side == LEFT:
            oldest = np.full(len(times), FIRST_TIME)
            return oldest if self.tolerance_ms is None else times - self.tolerance_ms, times
        if self.tolerance_ms is None:
            return times, np.full(len(times), LAST_TIME)
        return times, times + self.tolerance_ms

    @property
    def text(self) -> str:
        text = "as of the time of the left"
        if self.tolerance_ms is not None:
            text += f", at most {self.tolerance_ms / 1000:.15g} s old"
        if self.lateness_ms:
            text += f", open for another {self.lateness_ms / 1000:.15g} s"
        return text


class AsOfJoinSpec(JoinSpec):
    """Joins a stream by key columns with a table whose versions are the records of the right."""

    kind: ClassVar = "join_as_of"
    takes_lateness: ClassVar = True

    def check(self, site: Site) -> None:
        if self.how not in HOWS:
            raise ConfigurationError(
                f"{site.label}: how is one of {', '.join(HOWS)}, not {self.how!r}: each record of the left "
                "has one version of the right at most"
            )
        super().check(site)

    @property
    def late_after_ms(self) -> int | None:
        assert isinstance(self.bounds, AsOf)
        return self.bounds.lateness_ms

    def build(self, ctx: OperatorContext) -> Operator:
        return AsOfJoinOperator(ctx, self)


class AsOfJoinOperator(JoinOperator):
    """Lets records of the left wait until the watermark reaches them: then all versions are there that they
    can need. One that comes behind the watermark, but not further than the lateness, is answered at once.

    A version is freed once the next one of its key has begun for all records that are to come. That is
    worked out anew after a restore.
    """

    def __init__(self, ctx: OperatorContext, spec: AsOfJoinSpec) -> None:
        super().__init__(ctx, spec)
        assert isinstance(spec.bounds, AsOf)
        self._lateness_ms = spec.bounds.lateness_ms

    def _side(self, spec: JoinSpec, number: int) -> Side:
        known = spec.columns[number]
        return Side(self.ctx, number, spec.how, known, waits_for_time=number == LEFT)

    def open(self) -> None:
        versions = self._sides[RIGHT].runs.runs
        for place, run in enumerate(versions):
            self._follow_each_other(run)
            for earlier in versions[:place]:
                self._follow(earlier, run)
        super().open()

    # What comes in.

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        side, columns = self._sides[input_index], to_columns(batch, self.ctx.label)
        side.columns.of_rows |= isinstance(batch, Rows)
        times = self._times_of(columns)
        table = side.fitting(columns.table)
        self._check_kinds()
        keyed, hashes = self._with_key(side.arrays_of(table)), side.columns.hashes(table)
        seen = self._seen(hashes)
        lateness_ms = self._lateness_ms if side.number == LEFT else 0
        # A sum could be beyond 64 bits at the end of event time.
        on_time = times > seen if not lateness_ms else times > np.maximum(seen, NEVER) - lateness_ms
        self.ctx.metrics.late_records += int(len(times) - np.count_nonzero(on_time))
        if side.number == LEFT:
            if not on_time.all():
                self._late(columns.where(~on_time))
            if not keyed.all() and side.gives_alone:
                alone = np.flatnonzero(on_time & ~keyed)
                self._emit_alone(side, taken(table, alone), times[alone], times[alone])
            keyed &= on_time
            if lateness_ms:
                self._answer_late(table, hashes, times, np.flatnonzero(keyed & (times <= seen)))
                keyed &= times > seen
        places = np.flatnonzero(keyed)
        if len(places):
            until = self._until(side, times)[places]
            rows = taken(table, places), hashes[places], times[places], until
            run = sorted_run(*rows, np.zeros(len(places), np.bool_))
            if side.number == RIGHT:
                self._follow_each_other(run)
                for earlier in side.runs.runs:
                    self._follow(earlier, run)
            side.runs.add(run, self._over_of(side), only_done=side.flagged)
        self._count()

    def _over_of(self, side: Side) -> int:
        """How far time has come for all records of a side."""
        if side.number == LEFT:
            return self._over
        return max(self._over, NEVER) - self._lateness_ms

    def _answer_late(self, table: pa.RecordBatch, hashes: U64, times: Times, late: Places) -> None:
        """Answer records that the watermark has passed: all versions that they can need have come."""
        if not len(late):
            return
        rows = taken(table, late), hashes[late], times[late], times[late]
        self._answer(sorted_run(*rows, np.ones(len(late), np.bool_)))

    # Versions.

    def _follow(self, earlier: Run, run: Run) -> None:
        """The versions of a run have come after an earlier one: each ends where the next begins."""
        same = partial(self._same, self._sides[RIGHT], run, earlier)
        before = newest(run.hashes, run.times, earlier, same)
        ends = np.flatnonzero(before >= 0)
        if len(ends):
            np.minimum.at(earlier.until, before[ends], run.times[ends])
            earlier.over_from = min(earlier.over_from, int(run.times[ends].min()))
        behind = next_after(run.hashes, run.times, earlier, same)
        ended = np.flatnonzero(behind >= 0)
        if len(ended):
            run.until[ended] = np.minimum(run.until[ended], earlier.times[behind[ended]])
            run.over_from = min(run.over_from, int(run.until[ended].min()))

    def _follow_each_other(self, run: Run) -> None:
        """The versions of one run: each ends where the next of its key begins."""
        order = np.lexsort((np.arange(len(run)), run.times, run.hashes))
        one, other = order[:-1], order[1:]
        alike = np.flatnonzero(run.hashes[one] == run.hashes[other])
        one, other = one[alike], other[alike]
        same = self._same(self._sides[RIGHT], run, run, one, other)
        if same is not None:
            one, other = one[same], other[same]
        if len(one):
            run.until[one] = np.minimum(run.until[one], run.times[other])
            run.over_from = min(run.over_from, int(run.until[one].min()))

    def _same(
        self, side: Side, run: Run, versions: Run, own: Places, theirs: Places
    ) -> Mask | None:
        """Whether keys are equal: those of a side in one run, those of the right in the other."""
        return equal_keys(side.keys_of(run, own), self._sides[RIGHT].keys_of(versions, theirs))

    # Results.

    def _free(self, least: int) -> Iterator[None]:
        """Give out the records of the left that the watermark has reached, in steps; then forget them and
        the versions that nobody needs any more."""
        left, right = self._sides
        for run in [run for run in left.runs.runs if run.over_from <= least]:
            due = np.flatnonzero((run.until <= least) & ~run.done)
            for start in range(0, len(due), CHUNK_KEYS):
                piece = due[start : start + CHUNK_KEYS]
                run.done[piece] = True
                self._answer(run.take(piece))
                yield
            left.runs.let_go(run, least)
        # The end of input does not count: a job that was drained may go on with more records.
        over = max(min(least, self._times.reached), NEVER) - self._lateness_ms
        for run in [run for run in right.runs.runs if run.over_from <= over]:
            right.runs.let_go(run, over)
        self._count()

    def _answer(self, asked: Run) -> None:
        """Give out records of the left, each with its version."""
        versions = self._sides[RIGHT].runs.runs
        which = np.full(len(asked), -1)
        places = np.zeros(len(asked), np.intp)
        best, _ = self._bounds.partners(LEFT, asked.times)
        for number, run in enumerate(versions):
            same = partial(self._same, self._sides[LEFT], asked, run)
            found = newest(asked.hashes, asked.times, run, same)
            times = run.times[found]
            better = (found >= 0) & (times >= best)
            which[better], places[better], best[better] = number, found[better], times[better]
        for number, run in enumerate(versions):
            own = np.flatnonzero(which == number)
            if len(own):
                joined = self._joined(asked.records(own), run.records(places[own]))
                self._give(joined, asked.times[own])
        if self._how == "left":
            alone = np.flatnonzero(which < 0)
            times = asked.times[alone]
            self._emit_alone(self._sides[LEFT], asked.records(alone), times, times)
