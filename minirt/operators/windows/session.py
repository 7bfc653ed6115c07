"""Sessions: one table with a slot for each session of a key that is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import Max, Min
from minirt.data.batch import Columns
from minirt.kernels.contract import Slots
from minirt.operators.common.aggregation import CHUNK_KEYS
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.windows.frame import WindowFrame
from minirt.operators.windows.intervals import joined
from minirt.operators.windows.outlet import Outlet, Pane, Task
from minirt.state.accumulators import Arrivals
from minirt.state.array_table import ArrayTable, Times
from minirt.state.chains import Chains
from minirt.state.numbers import grown
from minirt.windows import Session

_TABLE = "session"

SESSION, AT, SHOWN = "\x1esession", "\x1eat", "\x1eshown"
"""Columns that are added to records: the session that they belong to, told by the time at which it first
began; their event time; and nothing, for what is only ever set."""

_START, _END = Min(AT, "session start"), Max(AT, "session last")
_SHOWN_FROM, _SHOWN_TO = Max(SHOWN, "shown start"), Max(SHOWN, "shown last")


class SessionFrame(WindowFrame):
    """Joins the records of a batch with the sessions that are open, all keys at once, by sorting intervals.

    A table holds beside the aggregates when a session begins and when its last record was; a session that
    is over and not open for late records any more is dropped. A record at the end of a session still is
    part of it, so the session is over, and its result has its event time, at that very millisecond.
    """

    def __init__(self, ctx: OperatorContext, task: Task, outlet: Outlet | None = None) -> None:
        super().__init__(ctx, task, outlet)
        assert isinstance(task.window, Session)
        self._gap = task.window.gap_ms
        self._own = len(task.aggregates)
        shown = (_SHOWN_FROM, _SHOWN_TO)
        bounds = (_START, _END, *(shown if task.marks_panes else ()))
        self._sessions = ArrayTable(
            [*self._keys, SESSION],
            (*task.aggregates, *bounds),
            ctx.label,
            routing=self._routing,
            arrivals=Arrivals(),
            # A job may allow lateness, or ask for early results, that did not when it took the snapshot.
            optional=shown,
        )
        self._listed = self._sessions.of_keys(len(self._keys))
        self._chains = Chains()
        """The sessions of each key that is listed, by its slot there."""
        self._changed = np.zeros(1024, np.bool_)
        """By slot, whether it has changed since early results were given out."""
        self._next_end: int | None = None
        """No session ends before; None if that is not known."""

    def take(self, columns: Columns, times: Times | None) -> None:
        assert times is not None
        late = times + self._gap + self._lateness <= self._watermarks(columns)
        if late.any():
            self._put_aside(columns, late)
            columns, times = columns.where(~late), times[~late]
        if not len(times):
            return
        with Calling(self.ctx.label, otherwise=columns.table.schema.names):
            touched = self._join(columns.table, times)
        self._follow(touched)

    def fire(self) -> Iterator[None]:
        least = self._times.least
        if self._next_end is not None and self._next_end > least:
            return
        pending = self._sessions.pending()
        due = self._ordered(self._sessions, pending[self._ends(pending) <= least])
        for first in range(0, len(due), CHUNK_KEYS):
            self._give_out(due[first : first + CHUNK_KEYS], "on_time")
            yield
        live = self._sessions.live()
        self._close(live[self._ends(live) + self._lateness <= least])
        left = self._sessions.pending()
        self._next_end = None
        if not self._lateness:
            self._next_end = int(self._ends(left).min()) if len(left) else np.iinfo(np.int64).max

    def fire_early(self) -> Iterator[None]:
        changed = np.flatnonzero(self._changed[: self._sessions.used])
        self._changed[:] = False
        for first in range(0, len(changed), CHUNK_KEYS):
            self._show_sessions(changed[first : first + CHUNK_KEYS], "early")
            yield

    def tables(self) -> Mapping[str, ArrayTable]:
        return {_TABLE: self._sessions}

    def table_named(self, name: str) -> ArrayTable:
        return self._sessions

    def restored(self) -> None:
        self._make_room()
        self._list_anew()
        # More lateness may have been allowed: these would be joined to records that are not late now.
        live = self._sessions.live()
        given = live[~self._sessions.is_pending(live)]
        self._close(given[self._ends(given) + self._lateness <= self._times.least])
        if self._task.emission.when == "interval":
            self._changed[self._sessions.pending()] = True

    def _watermarks(self, columns: Columns) -> Times:
        if not self._times.differ:
            return np.full(len(columns), self._times.least)
        return self._seen(self._listed.key_groups(columns.table, self.ctx.max_parallelism))

    def _join(self, table: pa.RecordBatch, times: Times) -> Slots:
        """Add records to their sessions, new ones and those that they join; returns the slots of these."""
        keys = self._listed.add_rows(table, None)
        owners, known = self._chains.of(np.unique(keys))
        found = joined(
            np.concatenate([keys, owners]),
            np.concatenate([times, self._starts(known)]),
            np.concatenate([times + self._gap, self._ends(known)]),
        )
        of_records, of_known = found[: len(keys)], found[len(keys) :]
        ids = np.full(int(found.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(ids, of_records, times)
        survivors = self._merge(of_known, known)
        if len(known):
            ids[list(survivors)] = self._ids(np.array(list(survivors.values())))
        added = [ids[of_records], times, pa.nulls(len(times), pa.int64())]
        for name, column in zip((SESSION, AT, SHOWN), added, strict=True):
            table = table.append_column(name, pa.array(column))
        slots = self._sessions.add_rows(table, None)
        touched, rows = np.unique(slots, return_index=True)
        self._chains.link(keys[rows], touched)
        self._make_room()
        absorbed = np.setdiff1d(known, np.array(list(survivors.values()), np.intp))
        self._retract(self._ordered(self._sessions, absorbed))
        kept = self._drop(absorbed)
        if kept is not None:
            moved = np.full(int(kept.max()) + 1, -1)
            moved[kept] = np.arange(len(kept))
            touched = moved[touched]
        return touched

    def _merge(self, found: Times, known: Slots) -> dict[int, int]:
        """Merge open sessions that are one now; returns the slot that is left, by joined interval."""
        order = np.lexsort((self._starts(known), found))
        survivors: dict[int, int] = {}
        rounds: list[list[tuple[int, int]]] = []
        if len(np.unique(found)) == len(found):
            return dict(zip(found.tolist(), known.tolist(), strict=True))
        depth: dict[int, int] = {}
        for interval, slot in zip(found[order].tolist(), known[order].tolist(), strict=True):
            if interval not in survivors:
                survivors[interval] = slot
                continue
            turn = depth[interval] = depth.get(interval, -1) + 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append((survivors[interval], slot))
        for pairs in rounds:
            into, others = np.array(pairs, np.intp).T
            shown = self._shown(into)
            self._sessions.merge(into, others)
            self._set_shown(into, shown)
        return survivors

    def _follow(self, touched: Slots) -> None:
        """Give out sessions that are over already, and early results."""
        touched = self._ordered(self._sessions, touched)
        over = self._ends(touched) <= self._times.least
        self._give_out(touched[over], "late")
        coming = touched[~over]
        self._sessions.hold_back(coming)
        if len(coming):
            end = int(self._ends(coming).min())
            if self._next_end is not None:
                self._next_end = min(self._next_end, end)
        if self._task.emission.when == "updates":
            self._show_sessions(coming, "early")
        elif self._task.emission.when == "interval":
            self._changed[coming] = True

    def _give_out(self, slots: Slots, pane: Pane) -> None:
        if len(slots):
            self._show_sessions(slots, pane)
            self._sessions.given_out(slots)
            self._changed[slots] = False

    def _show_sessions(self, slots: Slots, pane: Pane) -> None:
        if not len(slots):
            return
        starts, ends = self._starts(slots), self._ends(slots)
        if self._task.marks_panes:
            known, shown_from, shown_to = self._shown(slots)
            self._retract(slots[known & ((shown_from != starts) | (shown_to != ends))])
            self._set_shown(slots, (np.ones(len(slots), np.bool_), starts, ends))
        with self._giving_out:
            results, _ = self._sessions.results(slots)
        self._show(self._without_bounds(results), (starts, ends), pane, ends)

    def _retract(self, slots: Slots) -> None:
        """Take back results that were given out of sessions that are others now."""
        if not self._task.marks_panes or not len(slots):
            return
        known, starts, ends = self._shown(slots)
        slots = slots[known]
        results, _ = self._sessions.results(slots)
        shown = self._without_bounds(results)
        self._show(shown, (starts[known], ends[known]), "retracted", ends[known])

    def _close(self, slots: Slots) -> None:
        """No record can come any more that would be part of these sessions."""
        if not len(slots):
            return
        if self._outlet.follows_windows:
            results, _ = self._sessions.results(slots)
            bounds = self._starts(slots), self._ends(slots)
            self._outlet.closed(self._without_bounds(results), bounds)
        self._drop(slots)

    def _without_bounds(self, results: pa.RecordBatch) -> pa.RecordBatch:
        keys = len(self._keys)
        return results.select([*range(keys), *range(keys + 1, keys + 1 + self._own)])

    def _drop(self, slots: Slots) -> Slots | None:
        self._changed[slots] = False
        kept = self._sessions.drop(slots)
        self._chains.unlink(slots)
        if kept is not None:
            changed = self._changed[kept]
            self._changed = grown(changed, len(changed), 1024, False)
            self._list_anew()
        return kept

    def _list_anew(self) -> None:
        """List the keys of open sessions only."""
        self._listed = self._sessions.of_keys(len(self._keys))
        self._chains = Chains()
        live = self._sessions.live()
        if len(live):
            keys = self._listed.list_keys(self._sessions.keys(live)[:-1])
            self._chains.link(keys, live)

    def _make_room(self) -> None:
        used = self._sessions.used
        if used > len(self._changed):
            self._changed = grown(self._changed, len(self._changed), used, False)

    # Numbers beside the aggregates.

    def _starts(self, slots: Slots) -> Times:
        return self._sessions.numbers(self._own, slots)[0]

    def _ends(self, slots: Slots) -> Times:
        return self._sessions.numbers(self._own + 1, slots)[0] + self._gap

    def _ids(self, slots: Slots) -> Times:
        ids: Times = self._sessions.keys(slots)[-1].to_numpy()
        return ids

    def _shown(self, slots: Slots) -> tuple[npt.NDArray[np.bool_], Times, Times]:
        """Whether results of these sessions were given out, and with which bounds."""
        if not self._task.marks_panes:
            none = np.zeros(len(slots), np.int64)
            return none.astype(np.bool_), none, none
        starts, known = self._sessions.numbers(self._own + 2, slots)
        return known, starts, self._sessions.numbers(self._own + 3, slots)[0]

    def _set_shown(self, slots: Slots, shown: tuple[npt.NDArray[np.bool_], Times, Times]) -> None:
        if self._task.marks_panes:
            known, starts, ends = shown
            self._sessions.set_numbers(self._own + 2, slots, starts, known)
            self._sessions.set_numbers(self._own + 3, slots, ends, known)
