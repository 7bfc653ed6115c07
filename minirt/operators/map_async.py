"""`map_async`: an answer for each record, from requests that wait beside the record path."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Literal

from minirt.data.batch import Batch, Rows
from minirt.data.keys import key_groups
from minirt.errors import ConfigurationError, UserCodeError
from minirt.functions import AsyncFunction, Retry
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, function_name
from minirt.operators.common.base import (
    Operator,
    OperatorContext,
    Step,
    Wait,
    opening_error,
    shown,
)
from minirt.operators.common.calling import Calling, result_of_each
from minirt.operators.common.checks import check_flag, check_hooks, check_instance
from minirt.operators.common.functions import check_arity, check_stateless
from minirt.operators.common.keyed import check_stored_keys
from minirt.operators.common.request_client import TIMED_OUT, RequestClient
from minirt.operators.common.requests import Request, RequestQueue, TimeSignal
from minirt.operators.common.results import rows_with_times
from minirt.protocol.key_groups import group_range
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.sections import Section, pack_section, unpack_section
from minirt.state.stored import REQUEST_TABLE, REQUESTS
from minirt.units import positive

TIMEOUT_TAG = "timeout"
"""The side output for records whose request was not answered in time."""

CAPACITY_MAX = 1 << 20
"""How many requests may be under way at most."""

QUEUE_S = 0.05
"""How long the queues ahead last: what lies ahead of a barrier is sent first."""

OnTimeout = Literal["fail", "side"]

_EMIT_S = 0.002
"""How long answers are handed on at a time, before the subtask looks around."""

_AS_IT_WAS = "in the job that took it, at its parallelism"


@dataclass(frozen=True, slots=True)
class MapAsyncSpec(OperatorSpec):
    """`function` is a coroutine function of the record, or an AsyncFunction. With `keyed` the requests of a
    key go to its subtask at a restore; otherwise they are spread, unless that would change their order."""

    kind: ClassVar = "map_async"
    inputs: ClassVar = 1
    # Also with keys: the requests may have been taken up before the user put `key_by` there.
    state: ClassVar = StateDealing.BY_OPERATOR
    takes: ClassVar = Form.ROWS
    queue_s: ClassVar = QUEUE_S

    function: Callable[[Any], Awaitable[Any]]
    capacity: int = 100
    timeout_s: float | None = 10.0
    on_timeout: OnTimeout = "fail"
    ordered: bool = True
    retry: Retry | None = None
    keyed: bool = False

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    @property
    def details(self) -> str:
        order = "in order" if self.ordered else "as they come"
        return f", {self.capacity} requests at a time, answers {order}"

    @property
    def owned(self) -> object | None:
        return self.function if isinstance(self.function, AsyncFunction) else None

    def check(self, site: Site) -> None:
        label = site.label
        _check_coroutine_function(self.function, label)
        if positive(f"{label}: capacity", self.capacity) > CAPACITY_MAX:
            raise ConfigurationError(
                f"{label}: capacity is at most {CAPACITY_MAX}, got {self.capacity}"
            )
        if self.timeout_s == 0:
            raise ConfigurationError(f"{label}: timeout must be above 0; None waits for ever")
        if self.on_timeout not in ("fail", "side"):
            raise ConfigurationError(
                f'{label}: on_timeout must be "fail" or "side", got {self.on_timeout!r}'
            )
        if self.on_timeout == "side" and self.timeout_s is None:
            raise ConfigurationError(f'{label}: on_timeout="side" has no effect without a timeout')
        check_flag(self.ordered, "ordered", label)
        if self.retry is not None:
            check_instance(self.retry, Retry, f"{label}: retry")

    def side_output(self, tag: str, label: str) -> Form:
        if tag != TIMEOUT_TAG:
            raise ConfigurationError(
                f"{label}: map_async has one side output, {TIMEOUT_TAG!r}, and no {tag!r}"
            )
        if self.on_timeout != "side":
            raise ConfigurationError(
                f"{label}: a request without answer fails the job; have its record sent to the side "
                f'output {TIMEOUT_TAG!r} with on_timeout="side"'
            )
        return Form.ROWS

    def build(self, ctx: OperatorContext) -> Operator:
        return MapAsyncOperator(ctx, self)


def _check_coroutine_function(function: Any, label: str) -> None:
    if inspect.isclass(function) and issubclass(function, AsyncFunction):
        raise ConfigurationError(
            f"{label}: give an instance, {function.__name__}(...), not the class"
        )
    if isinstance(function, AsyncFunction):
        check_hooks(label, function, "open", "close")
        for name in ("open", "close"):
            if not inspect.iscoroutinefunction(getattr(function, name)):
                raise ConfigurationError(
                    f"{label}: {type(function).__name__}.{name} is awaited; write `async def {name}`"
                )
    check_stateless(function, label, "what map_async calls")
    call = getattr(type(function), "__call__", None)  # noqa: B004 - looked into, not called
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        check_arity(function, label, "the record")
        return
    hint = "write `async def`, or use map" if callable(function) else "write one with `async def`"
    raise ConfigurationError(
        f"{label}: map_async calls a coroutine function of the record, got {function!r}; {hint}"
    )


class MapAsyncOperator(Operator):
    """The state is every record whose answer was not emitted. After a restore it is sent again."""

    holds_time: ClassVar[bool] = True

    def __init__(self, ctx: OperatorContext, spec: MapAsyncSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._key_of = ctx.keys[0].on_rows() if spec.keyed else None
        self._queue = RequestQueue(spec.capacity, ordered=spec.ordered)
        self._client = RequestClient(
            ctx.label,
            spec.function,
            spec.capacity,
            spec.timeout_s,
            spec.retry,
            ctx.custody,
            ctx.mailbox,
            ctx.run_async,
        )
        self._side = ctx.side(TIMEOUT_TAG)
        self._piece = 1
        """How many answers are handed on at a time: those behind may be slow."""
        self._restored: list[Request] = []
        self._dealt = 0
        """How many requests of old subtasks were dealt out so far."""

    def open(self) -> None:
        if self._restored:
            self._client.send(self._restored)
            self._restored = []

    def close(self) -> None:
        self._client.close()

    @property
    def room(self) -> int | None:
        return self._queue.room

    def process(self, batch: Batch, input_index: int) -> None:
        rows, add = batch.rows(), self._queue.add
        if self._key_of is not None:
            with Calling(self.ctx.label):
                keys = result_of_each(self._key_of, rows.records)
            check_stored_keys(keys, rows.records, self.ctx.label)
        requests = [add(record, time) for record, time in rows_with_times(rows)]
        if requests:
            self._client.send(requests)

    def on_watermark(self, watermark: int) -> Iterable[Step]:
        if watermark != MAX_WATERMARK:  # Those behind hear of the end when all answers are there.
            self._signal(TimeSignal(watermark, None))
        return ()

    def on_idle(self, idle: bool) -> Iterable[Step]:
        self._signal(TimeSignal(None, idle))
        return ()

    def on_mail(self) -> Iterator[Step]:
        while (answers := self.ctx.mailbox.take()) is not None:
            for request, result, error in answers:
                if request is None:
                    raise opening_error(self.ctx.label, error)
                self._queue.on_answered(request, result, error)
        return self._emit()

    def on_end(self) -> Iterator[Step]:
        while not self._queue.empty:
            yield Wait.FOR_MAIL

    def snapshot(self) -> Mapping[str, Section]:
        requests = [*self._queue.requests()]
        if not requests:
            return {}
        return {
            REQUESTS: partial(
                pack_section,
                REQUEST_TABLE,
                [request.record for request in requests],
                [request.time for request in requests],
                allow_pickle=self.ctx.allow_pickle,
            )
        }

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        if REQUESTS not in sections:
            return
        stored = unpack_section(
            REQUEST_TABLE, sections[REQUESTS], allow_pickle=self.ctx.allow_pickle
        )
        for records, times in stored:
            for record, time, is_mine in zip(
                records, times, self._mine(records, exact), strict=True
            ):
                if is_mine:
                    self._restored.append(self._queue.add(record, time))

    def _mine(self, records: list[Any], exact: bool) -> list[bool]:
        """Which of the records that an old subtask has stored are for this one.

        Raises ConfigurationError where records of one key would lose their order.
        """
        if self._key_of is None:
            return [True] * len(records) if exact else self._in_turn(len(records))
        ctx = self.ctx
        groups = group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        with Calling(ctx.label):
            keys = result_of_each(self._key_of, records)
        mine = [int(group) in groups for group in key_groups(keys, ctx.max_parallelism)]
        if exact and not all(mine):
            raise ConfigurationError(
                f"operator {ctx.label}: the checkpoint holds requests of keys of other subtasks, as it was "
                f"taken without this key_by; restore it {_AS_IT_WAS}, or at another parallelism, where all "
                "requests are dealt anew"
            )
        return mine

    def _in_turn(self, count: int) -> list[bool]:
        """Nothing tells where later records of the same key go, so the order of some may be lost."""
        ctx = self.ctx
        if count and ctx.in_order and self._spec.ordered and ctx.parallelism > 1:
            raise ConfigurationError(
                f"operator {ctx.label}: requests that were under way at another parallelism cannot be "
                f"spread over {ctx.parallelism} subtasks, as records of one key would lose their order; "
                "put key_by before map_async, which brings them to the subtask of their key; or, if their "
                "order does not matter, declare ordered=False there; or restore the checkpoint "
                f"{_AS_IT_WAS}"
            )
        turns = range(self._dealt, self._dealt + count)
        self._dealt += count
        return [turn % ctx.parallelism == ctx.subtask for turn in turns]

    def _signal(self, signal: TimeSignal) -> None:
        """Event time goes on behind what is under way: it is handed on where answers are."""
        self._queue.signal(signal)
        self.ctx.mailbox.put([])

    def _emit(self) -> Iterator[Step]:
        """Hand on all that can be."""
        queue, monotonic = self._queue, self.ctx.monotonic
        while (taken := queue.take(self._piece)) is not None:
            if isinstance(taken, TimeSignal):
                yield from self.ctx.pass_time(taken.watermark, taken.idle)
                continue
            began_at = monotonic()
            self._emit_answers(taken)
            slow = monotonic() - began_at > _EMIT_S
            self._piece = max(1, self._piece // 2) if slow else min(2 * self._piece, CAPACITY_MAX)
            yield None

    def _emit_answers(self, requests: list[Request]) -> None:
        for (failed, _), group in groupby(requests, _form):
            alike = [*group]
            times = [request.time for request in alike if request.time is not None]
            if failed:
                for request in alike:
                    self._refuse(request)
                self._side(Rows([request.record for request in alike], times or None))
            else:
                self.ctx.emit(Rows([request.result for request in alike], times or None))

    def _refuse(self, request: Request) -> None:
        """Raise the error of a request, unless its record goes to the side output."""
        error, label = request.error, self.ctx.label
        assert error is not None
        if error is not TIMED_OUT:
            with Calling(label, request.record):
                raise error
        if self._spec.on_timeout == "fail":
            raise UserCodeError(
                f"operator {label} failed on record {shown(request.record)}\n"
                f"its request was not answered within {self._spec.timeout_s:g} s"
            )


def _form(request: Request) -> tuple[bool, bool]:
    """What the answers of a batch have in common: whether they failed, and whether they have a time."""
    return request.error is not None, request.time is not None
