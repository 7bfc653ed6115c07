"""`distinct`: the first record of each key, for good or within a span of event time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.keys import distinct_keys, key_groups
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.held_for import check_use, held_for
from minirt.operators.common.keyed import KeyedOperator, check_stored_keys, keys_of
from minirt.state.event_times import EventTimes
from minirt.state.expiring import PIECE_ENTRIES
from minirt.state.expiry import Agenda, Turns
from minirt.state.sections import Section
from minirt.state.stored import EVENT_TIME

LATE_TAG = "late"
"""The side output that carries the records of which nobody knows any more whether they are the first."""

Places = Sequence[int]


@dataclass(frozen=True, slots=True)
class DistinctSpec(OperatorSpec):
    """Gives out a record unless one of its key was given out, less than `within_ms` older or newer."""

    kind: ClassVar = "distinct"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = None

    within_ms: int | None = None
    """None is for good."""

    @property
    def details(self) -> str:
        return "" if self.within_ms is None else f", within {self.within_ms / 1000:g} s"

    @property
    def use(self) -> str:
        """What keys are held for."""
        span = "for good" if self.within_ms is None else f"within {self.within_ms} ms"
        return f"distinct records {span}"

    @property
    def repeats(self) -> bool:
        return self.within_ms is None

    @property
    def repeats_batches(self) -> bool:
        """What it has forgotten is too old to decide about any record that is not late."""
        return True

    @property
    def needs_event_time(self) -> bool:
        return self.within_ms is not None

    def check(self, site: Site) -> None:
        if self.within_ms is not None and self.within_ms < 1:
            raise ConfigurationError(
                f"{site.label}: within must be at least 1ms; without it, records are distinct for good"
            )

    def side_output(self, tag: str, label: str) -> Form:
        if tag != LATE_TAG or self.within_ms is None:
            has = "no side outputs without within=..." if self.within_ms is None else "'late' only"
            raise ConfigurationError(f"{label} has {has}, and no side output {tag!r}")
        return Form.ROWS

    def output_schema(self, site: Site) -> pa.Schema | None:
        return site.schema

    def build(self, ctx: OperatorContext) -> Operator:
        if self.within_ms is None:
            return DistinctOperator(ctx, self.use)
        return DistinctWithinOperator(ctx, self.use, self.within_ms)


class DistinctOperator(KeyedOperator):
    """Remembers every key that there was."""

    def __init__(self, ctx: OperatorContext, use: str) -> None:
        super().__init__(ctx)
        self._use = use
        self._given: dict[Any, Any] = self.state.table("given")

    def process(self, batch: Batch, input_index: int) -> None:
        keys, given = self._keys_of(batch), self._given
        # Of equal keys the last one of a dict counts: so from behind, the first place of each.
        places = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
        new = places.keys() - given.keys()
        if not new:
            return
        self.state.change(new)
        given.update(dict.fromkeys(new, True))
        self.ctx.emit(picked(batch, sorted(map(places.__getitem__, new))))

    def snapshot(self) -> Mapping[str, Section]:
        return {**super().snapshot(), **held_for(self._use, some=bool(self._given))}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        check_use(sections, self._use, self.ctx.label)
        super().restore(sections, exact=exact)

    def _keys_of(self, batch: Batch) -> list[Any]:
        with Calling(self.ctx.label):
            keys = keys_of(batch, self.ctx.keys[0])
        records = batch.records if isinstance(batch, Rows) else keys
        check_stored_keys(keys, records, self.ctx.label)
        return distinct_keys(keys)


class DistinctWithinOperator(DistinctOperator):
    """Remembers when the records were that it gave out, until the watermark says that none can come that is
    near enough.

    A record that is not newer than the watermark that its key has seen is late: what it might repeat may
    be forgotten.
    """

    def __init__(self, ctx: OperatorContext, use: str, within_ms: int) -> None:
        super().__init__(ctx, use)
        self._within_ms = within_ms
        self._times = EventTimes(self._groups)
        self._agenda = Agenda(within_ms)
        self._turns = Turns(ctx.monotonic, share=1)
        self._late = ctx.side(LATE_TAG)

    def open(self) -> None:
        for key, times in self._given.items():
            for time in times:
                self._agenda.put(key, time + self._within_ms)

    def process(self, batch: Batch, input_index: int) -> None:
        if batch.timestamps is None:
            raise UserCodeError(
                f"operator {self.ctx.label}: distinct(within=...) needs event time, but these records have "
                "no timestamps; give their source watermarks=..."
            )
        keys = self._keys_of(batch)
        times = np.asarray(batch.timestamps, np.int64)
        on_time = times > self._seen(keys)
        if not on_time.all():
            late = np.flatnonzero(~on_time).tolist()
            self.ctx.metrics.late_records += len(late)
            self._late(picked(batch, late))
        first = self._first(keys, times.tolist(), np.flatnonzero(on_time).tolist())
        if first:
            self.ctx.emit(picked(batch, first))

    def on_watermark(self, watermark: int) -> Iterable[None]:
        self.watermark = watermark
        self._times.advance(watermark)
        return ()

    @property
    def due_at(self) -> float | None:
        at = self._agenda.next_at
        return None if at is None or at > self._times.reached else self._turns.not_before

    def on_due(self) -> None:
        """Forget some of what no record can repeat any more.

        The end of input does not count: a job that was drained may go on with more records.
        """
        with self._turns.piece():
            self._forget(self._agenda.take(self._times.reached, PIECE_ENTRIES))
            if self.due_at is None:
                self.state.shrink()

    def snapshot(self) -> Mapping[str, Section]:
        return {**super().snapshot(), EVENT_TIME: self._times.snapshot()}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        super().restore(sections, exact=exact)
        if EVENT_TIME in sections:
            self._times.restore(sections[EVENT_TIME])

    def _seen(self, keys: Sequence[Any]) -> npt.NDArray[np.int64] | int:
        """The watermark that the key of each record has seen."""
        if not self._times.differ:
            return self._times.least
        return self._times.of(key_groups(keys, self.ctx.max_parallelism))

    def _first(self, keys: Sequence[Any], times: Sequence[int], places: Places) -> Places:
        """Which of the records at these places are no repetitions; they are remembered."""
        given, within, new = self._given, self._within_ms, dict[Any, tuple[int, ...]]()
        first = []
        for place in places:
            key, time = keys[place], times[place]
            known = new.get(key) or given.get(key, ())
            if all(abs(time - one) >= within for one in known):
                new[key] = (*known, time)
                self._agenda.put(key, time + within)
                first.append(place)
        self.state.change(new)
        given.update(new)
        return first

    def _forget(self, keys: Sequence[Any]) -> None:
        given, within, reached = self._given, self._within_ms, self._times.reached
        self.state.change(keys)
        for key in keys:
            known = given.get(key, ())
            left = tuple(time for time in known if time + within > reached)
            if left:
                given[key] = left
            elif known:
                del given[key]


def picked(batch: Batch, places: Places) -> Batch:
    """The records at these places, in their order."""
    if len(places) == len(batch):
        return batch
    if isinstance(batch, Columns):
        return batch.take(np.asarray(places, np.intp))
    times = batch.timestamps
    return Rows(
        [batch.records[place] for place in places],
        None if times is None else [times[place] for place in places],
    )
