"""`process` of a keyed stream and a broadcast one: a user's function with state per key and for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from minirt.data.batch import Batch, Rows
from minirt.errors import ConfigurationError
from minirt.functions import BroadcastProcess
from minirt.graph.operator_spec import Site
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.checks import check_instance, check_methods
from minirt.operators.common.keyed import named, only
from minirt.operators.common.results import Produced, emit_results, rows_with_times
from minirt.operators.keyed_process import KeyedProcessOperator, KeyedProcessSpec
from minirt.state.binding import bind_broadcast, check_states
from minirt.state.broadcast import NO_KEY, BroadcastTables
from minirt.state.sections import Section
from minirt.state.stored import BROADCAST, NO_WATERMARK

KEYED, BROADCASTED = 0, 1


class BroadcastProcessSpec(KeyedProcessSpec):
    kind: ClassVar = "broadcast_process"
    inputs: ClassVar = 2
    without_key: ClassVar = frozenset({BROADCASTED})

    def check(self, site: Site) -> None:
        check_instance(self.process, BroadcastProcess, site.label)
        check_methods(site.label, self.process, "process", "process_broadcast", "on_timer")
        try:
            check_states(self.process, broadcast=True)
        except ConfigurationError as error:
            raise ConfigurationError(f"{site.label}: {error}") from error

    def build(self, ctx: OperatorContext) -> Operator:
        assert isinstance(self.process, BroadcastProcess)
        return BroadcastProcessOperator(ctx, self.process)


class BroadcastProcessOperator(KeyedProcessOperator):
    """Runs a user's BroadcastProcess.

    No barrier overtakes broadcast records: so all subtasks have seen the same of them at a checkpoint, and
    each of a restored job can begin with what any old one held.
    """

    def __init__(self, ctx: OperatorContext, process: BroadcastProcess) -> None:
        super().__init__(ctx, process)
        self._broadcast = BroadcastTables(allow_pickle=ctx.allow_pickle)
        self._function = process

    @property
    def key(self) -> Any:
        if self.state.key is NO_KEY:
            hash(NO_KEY)
        return self.state.key

    @property
    def watermark(self) -> int | None:
        if self.state.key is not NO_KEY:
            return super().watermark
        return None if self._times.least == NO_WATERMARK else self._times.least

    @watermark.setter
    def watermark(self, watermark: int | None) -> None:
        if watermark is not None:
            self._times.advance(watermark)

    def open(self) -> None:
        bind_broadcast(self._function, self._broadcast, self.ctx.custody)
        super().open()

    def process(self, batch: Batch, input_index: int) -> None:
        if input_index == KEYED:
            super().process(batch, input_index)
            return
        self.domain, self.state.key, self._broadcast.writable = "event", NO_KEY, True
        try:
            with Calling(self.ctx.label):
                emit_results(self._of_broadcast(batch.rows()), self.ctx)
        finally:
            self._broadcast.writable = False

    def snapshot(self) -> Mapping[str, Section]:
        return {**super().snapshot(), **named(BROADCAST, self._broadcast.snapshot())}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        super().restore(sections, exact=exact)
        self._broadcast.restore(only(BROADCAST, sections))

    def _of_broadcast(self, rows: Rows) -> Iterator[Produced]:
        handle = self._function.process_broadcast
        for record, time in rows_with_times(rows):
            self.timestamp = time
            yield record, handle(record, self), time
