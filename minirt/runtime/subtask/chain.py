"""The operators of one subtask, one feeding the next by function calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from minirt.clock import Clock
from minirt.config import Options
from minirt.data.batch import Batch, Rows
from minirt.data.custody import Custody, Watching, custody_of
from minirt.graph.execution import Vertex
from minirt.io.base import Split, Staging
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.operators.common.base import CoroutineStart, Emit, Operator, OperatorContext, Step
from minirt.operators.common.mailbox import Mailbox
from minirt.protocol.ids import SubtaskId
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.channels.output import LinkOutput
from minirt.runtime.subtask.fan_out import fan_out
from minirt.runtime.subtask.intake import Intake, WatchedIntake

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
    repeats: bool = False
    """Whether the subtask may have to do again what others have seen."""
    read_clock: Callable[[], int] | None = None
    """What the clock shows, in milliseconds since 1970, where that is logged."""


class Chain:
    """The first operator takes the input; each one feeds those behind it, and its links. A source is no
    part of it, but has its place: what it has read enters behind it.

    Recovered records that were on their way to a later operator enter the chain there.
    """

    def __init__(self, vertex: Vertex, links: Sequence[LinkOutput], context: ChainContext) -> None:
        self._vertex = vertex
        self._links = links
        watched = context.options.detect_mutation
        self._emits = {link: _watched_emit(link) if watched else link.emit for link in links}
        self._intakes: dict[int, Intake] = {}
        """The intake of each operator, by its place in the vertex; a source has none."""
        built: dict[int, Operator] = {}
        for place, node in reversed([*enumerate(vertex.operators)]):
            self.head_context = self._context(place, context)
            if node.spec.inputs:
                built[place] = node.spec.build(self.head_context)
                intake = WatchedIntake if watched else Intake
                self._intakes[place] = intake(built[place])
        placed = sorted(built.items())
        self.operators = [one for _, one in placed]
        """Each comes before those that it feeds."""
        self._root = vertex.operators[0].uid if vertex.is_source else None
        feeders = [None, *(vertex.operators[feeder].uid for feeder in vertex.feeders)]
        self._fed = [(feeders[at], one) for at, one in placed]
        """The operators, each with the uid of the one that feeds it; None for one that takes the input."""
        self._passed: dict[str | None, int | None] = {self._root: None}
        """The last watermark that came in, and that each operator has handed on which holds it."""
        self._passed |= {one.ctx.uid: None for one in self.operators if one.holds_time}
        self.least_piece = max((one.least_piece for one in self.operators), default=1)
        """No batch is to be cut into smaller pieces."""
        self._clocked = [(at, one) for at, one in placed if _overrides(one, *_ASKED_FOR_TIME)]
        self._addressed = [(at, one) for at, one in placed if _overrides(one, "on_mail")]
        self.takes_mail = bool(self._addressed)
        """Whether any operator may ever get mail."""
        self._limited = [(at, one) for at, one in placed if _overrides(one, "room")]
        self.on_time_passed: Callable[[int | None, bool | None, Collection[str | None]], None]
        self.on_time_passed = _nobody_told
        """Told what event time does, and the uids of the operators that know it and have handed it on."""

    @property
    def due_at(self) -> float | None:
        """When `on_due` has something to do, by the monotonic clock."""
        if not self._clocked:
            return None
        times = [operator.due_at for _, operator in self._clocked]
        return min((at for at in times if at is not None), default=None)

    @property
    def due_place(self) -> int:
        """The place of the operator whose time comes first; some operator must have one."""
        due = [(at, place) for place, one in self._clocked if (at := one.due_at) is not None]
        return min(due)[1]

    def on_due(self, place: int) -> Iterator[Step] | None:
        """Let the operator at this place do what is due."""
        return dict(self._clocked)[place].on_due()

    def room(self, place: int) -> int | None:
        """How many more records it can take up now at this place; None if any number.

        Operators of other branches count as well if they come later: mail makes them room, too.
        """
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
        intake = self._intakes.get(place)
        if intake is None:
            self.head_context.emit(batch)
        else:
            intake.take(batch, input_index)

    def pass_time(
        self, watermark: int | None, idle: bool | None, behind: str | None = None
    ) -> Iterator[Step]:
        """Event time has advanced, or the input has become idle or active again: operator by operator.

        In each branch it goes as far as an operator that holds it, and from there on once that one says so,
        which is then named in `behind` by its uid.
        """
        origin = self._root if behind is None else behind
        handed_on = {origin}
        for feeder, operator in self._fed:
            if feeder not in handed_on:
                continue
            if watermark is not None:
                yield from operator.on_watermark(watermark)
            if idle is not None:
                yield from operator.on_idle(idle)
            if not operator.holds_time:
                handed_on.add(operator.ctx.uid)
        if watermark is not None:
            self._passed[origin] = watermark
        self.on_time_passed(watermark, idle, handed_on)

    @property
    def watermark(self) -> int | None:
        """How far event time is in the branch that is furthest behind; None before the first watermark."""
        known = [watermark for watermark in self._passed.values() if watermark is not None]
        return min(known) if len(known) == len(self._passed) else None

    def on_end(self) -> Iterator[Step]:
        """End event time, operator by operator: what one still emits is not late for the next."""
        for operator in self.operators:
            yield from operator.on_watermark(MAX_WATERMARK)
            yield from operator.on_end()

    def _context(self, place: int, context: ChainContext) -> OperatorContext:
        node = self._vertex.operators[place]
        custody = custody_of(context.options, f"operator {node.label}", repeats=context.repeats)
        return OperatorContext(
            label=node.label,
            uid=node.uid,
            subtask=context.subtask.index,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            generation=context.generation,
            now=context.clock.now,
            allow_pickle=context.options.allow_pickle,
            emit=self._emit_behind(place, custody),
            side=self._sides(node.uid, custody),
            metrics=context.metrics,
            custody=custody,
            job=context.job,
            staging=context.staging,
            monotonic=context.clock.monotonic,
            keys=tuple(key for key in node.keys if key is not None),
            in_order=node.uid in context.in_order,
            splits=context.splits,
            watermark_interval_s=context.watermark_interval_s,
            source_poll_s=context.source_poll_s,
            watermarks_restored=context.watermarks_restored,
            repeats=context.repeats,
            read_clock=context.read_clock if node.spec.by_clock else None,
            mailbox=Mailbox(context.wake),
            run_beside=context.run_beside,
            run_async=context.run_async,
            pass_time=partial(self.pass_time, behind=node.uid),
        )

    def _emit_behind(self, place: int, custody: Custody) -> Emit:
        """How an operator emits, once those that it feeds are built."""
        branches = [self._intakes[at] for at in self._vertex.fed_by(place)]
        return fan_out(self._linked(self._vertex.operators[place].uid)[None], branches, custody)

    def _sides(self, uid: str, custody: Custody) -> Callable[[str], Emit]:
        linked = self._linked(uid)
        emits = {tag: fan_out(links, [], custody) for tag, links in linked.items()}
        nowhere = fan_out([], [], custody)
        return lambda tag: emits.get(tag, nowhere)

    def _linked(self, uid: str) -> defaultdict[str | None, list[Emit]]:
        """The links of an operator, by the output that they are of."""
        by_tag: defaultdict[str | None, list[Emit]] = defaultdict(list)
        for link in self._links:
            if link.link.source_uid == uid:
                by_tag[link.link.tag].append(self._emits[link])
        return by_tag


def _nobody_told(
    watermark: int | None, idle: bool | None, handed_on: Collection[str | None]
) -> None:
    """The subtask says who is."""


def _overrides(operator: Operator, *names: str) -> bool:
    return any(getattr(type(operator), name) is not getattr(Operator, name) for name in names)


def _watched_emit(link: LinkOutput) -> Emit:
    custody = Watching(f"the key or partitioner behind operator {link.link.source_uid}")

    def emit(batch: Batch) -> None:
        if isinstance(batch, Rows):
            custody.watch(batch.records)
        link.emit(batch)
        custody.check()

    return emit
