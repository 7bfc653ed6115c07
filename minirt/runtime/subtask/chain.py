"""The operators of one subtask, one feeding the next by function calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from minirt.clock import Clock
from minirt.config import Options
from minirt.data.batch import Batch, Rows
from minirt.data.custody import Watching, custody_of
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import UnsupportedValueError
from minirt.graph.execution import Vertex
from minirt.graph.job_graph import OperatorNode
from minirt.io.base import Split, Staging
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.operators.common.base import CoroutineStart, Emit, Operator, OperatorContext, Step
from minirt.operators.common.mailbox import Mailbox
from minirt.protocol.ids import SubtaskId
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.channels.output import LinkOutput

Entrance = Callable[[Batch, int], None]
"""Takes a batch for one input of an operator."""

_ASKED_FOR_TIME = ("due_at", "next_processing_time")


@dataclass(frozen=True, slots=True)
class ChainContext:
    """What the operators of a chain are built from."""

    subtask: SubtaskId
    job: str
    staging: Staging | None
    generation: int
    splits: Sequence[tuple[int, Split]]
    clock: Clock
    watermark_interval_s: float
    source_poll_s: float
    options: Options
    metrics: SubtaskMetrics
    wake: Callable[[], None]
    """Any thread may call it: there is mail for one of the operators."""
    run_beside: Callable[[Callable[[], None]], None]
    run_async: Callable[[CoroutineStart], None]
    in_order: Set[str]
    """The operators, by uid, to which records of one key may come in order."""
    watermarks_restored: bool = False


class Chain:
    """The first operator takes the input; the last one feeds the links. A source is no part of it, but
    has its place: what it has read enters behind it.

    Recovered records that were on their way to a later operator enter the chain there.
    """

    def __init__(self, vertex: Vertex, links: Sequence[LinkOutput], context: ChainContext) -> None:
        self._vertex = vertex
        self._links = links
        watched = context.options.detect_mutation
        self._emits = {link: _watched_emit(link) if watched else link.emit for link in links}
        emit = _fan_out([self._emits[link] for link in links if link.link.tag is None])
        feed = _feed_watched if watched else _feed
        operators: list[Operator] = []
        entrances: list[Entrance] = []
        for node in reversed(vertex.operators):
            self.head_context = self._context(node, emit, context)
            if not node.spec.inputs:
                entrances.append(_past_source(emit))
                break
            operators.append(node.spec.build(self.head_context))
            emit = partial(feed, operators[-1])
            entrances.append(emit)
        self._entrances = entrances[::-1]
        """The entrance of each operator, by its place in the vertex."""
        self.operators = operators[::-1]
        self.least_piece = max((one.least_piece for one in self.operators), default=1)
        """No batch is to be cut into smaller pieces."""
        self._clocked = [one for one in self.operators if _overrides(one, *_ASKED_FOR_TIME)]
        placed = [*enumerate(self.operators, len(vertex.operators) - len(self.operators))]
        self._addressed = [(at, one) for at, one in placed if _overrides(one, "on_mail")]
        self.takes_mail = bool(self._addressed)
        """Whether any operator may ever get mail."""
        self._limited = [(at, one) for at, one in placed if _overrides(one, "room")]
        self.on_time_passed: Callable[[int | None, bool | None], None] = _nobody_told
        """Told what event time does once all operators know it."""

    @property
    def due_at(self) -> float | None:
        """When `on_due` has something to do, by the monotonic clock."""
        if not self._clocked:
            return None
        times = [operator.due_at for operator in self._clocked]
        return min((at for at in times if at is not None), default=None)

    def on_due(self) -> Iterator[Step] | None:
        """Let the operator work whose time has come first."""
        due = [(at, one) for one in self._clocked if (at := one.due_at) is not None]
        return min(due, key=lambda pair: pair[0])[1].on_due()

    def room(self, place: int) -> int | None:
        """How many more records it can take up now at this place; None if any number."""
        if not self._limited:
            return None
        rooms = [one.room for at, one in self._limited if at >= place]
        return min((room for room in rooms if room is not None), default=None)

    def has_mail(self, place: int) -> bool:
        """Whether other threads have left something for an operator at this place or behind it."""
        return any(one.ctx.mailbox for at, one in self._addressed if at >= place)

    def on_mail(self, place: int) -> Iterator[Step] | None:
        """Let the first operator from this place on that has mail take it."""
        return next(one for at, one in self._addressed if at >= place and one.ctx.mailbox).on_mail()

    def process(self, batch: Batch, input_index: int, place: int = 0) -> None:
        self._entrances[place](batch, input_index)

    def pass_time(
        self, watermark: int | None, idle: bool | None, behind: str | None = None
    ) -> Iterator[Step]:
        """Event time has advanced, or the input has become idle or active again: operator by operator.

        It goes as far as an operator that holds it, and from there on once that one says so, which is
        then named in `behind` by its uid.
        """
        uids = [operator.ctx.uid for operator in self.operators]
        for operator in self.operators[0 if behind is None else uids.index(behind) + 1 :]:
            if watermark is not None:
                yield from operator.on_watermark(watermark)
            if idle is not None:
                yield from operator.on_idle(idle)
            if operator.holds_time:
                return
        self.on_time_passed(watermark, idle)

    def on_end(self) -> Iterator[Step]:
        """End event time, operator by operator: what one still emits is not late for the next."""
        for operator in self.operators:
            yield from operator.on_watermark(MAX_WATERMARK)
            yield from operator.on_end()

    def _context(self, node: OperatorNode, emit: Emit, context: ChainContext) -> OperatorContext:
        return OperatorContext(
            label=node.label,
            uid=node.uid,
            subtask=context.subtask.index,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            generation=context.generation,
            now=context.clock.now,
            allow_pickle=context.options.allow_pickle,
            emit=emit,
            side=self._sides(node.uid),
            metrics=context.metrics,
            custody=custody_of(context.options, f"operator {node.label}"),
            job=context.job,
            staging=context.staging,
            monotonic=context.clock.monotonic,
            keys=tuple(key for key in node.keys if key is not None),
            in_order=node.uid in context.in_order,
            splits=context.splits,
            watermark_interval_s=context.watermark_interval_s,
            source_poll_s=context.source_poll_s,
            watermarks_restored=context.watermarks_restored,
            mailbox=Mailbox(context.wake),
            run_beside=context.run_beside,
            run_async=context.run_async,
            pass_time=partial(self.pass_time, behind=node.uid),
        )

    def _sides(self, uid: str) -> Callable[[str], Emit]:
        by_tag: dict[str, list[Emit]] = {}
        for link in self._links:
            if link.link.source_uid == uid and link.link.tag is not None:
                by_tag.setdefault(link.link.tag, []).append(self._emits[link])
        emits = {tag: _fan_out(targets) for tag, targets in by_tag.items()}
        return lambda tag: emits.get(tag, _drop)


def _nobody_told(watermark: int | None, idle: bool | None) -> None:
    """The subtask says who is."""


def _overrides(operator: Operator, *names: str) -> bool:
    return any(getattr(type(operator), name) is not getattr(Operator, name) for name in names)


def _past_source(emit: Emit) -> Entrance:
    return lambda batch, input_index: emit(batch)


def _feed(operator: Operator, batch: Batch, input_index: int = 0) -> None:
    try:
        operator.process(batch, input_index)
    except UnsupportedRecordError as error:
        raise UnsupportedValueError(f"operator {operator.ctx.label}: {error}") from error


def _feed_watched(operator: Operator, batch: Batch, input_index: int = 0) -> None:
    custody = operator.ctx.custody
    if isinstance(batch, Rows):
        custody.watch(batch.records)
    _feed(operator, batch, input_index)
    custody.check()


def _watched_emit(link: LinkOutput) -> Emit:
    custody = Watching(f"the key or partitioner behind operator {link.link.source_uid}")

    def emit(batch: Batch) -> None:
        if isinstance(batch, Rows):
            custody.watch(batch.records)
        link.emit(batch)
        custody.check()

    return emit


def _fan_out(targets: Sequence[Emit]) -> Emit:
    if not targets:
        return _drop
    if len(targets) == 1:
        return targets[0]

    def emit(batch: Batch) -> None:
        for target in targets:
            target(batch)

    return emit


def _drop(batch: Batch) -> None:
    """Drop records that nobody asked for."""
