"""The operators of one subtask, one feeding the next by function calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from minirt.data.batch import Batch
from minirt.data.codec import UnsupportedRecordError
from minirt.errors import UserCodeError
from minirt.graph.execution import SubtaskId, Vertex
from minirt.graph.job_graph import (
    AggregateSpec,
    CoMapSpec,
    FilterColumnsSpec,
    FilterSpec,
    FlatMapSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    MapBatchesSpec,
    MapSpec,
    OperatorNode,
    ProcessSpec,
    ProjectSpec,
    ReduceSpec,
    SinkSpec,
    SourceSpec,
    WindowSpec,
)
from minirt.io.base import Prepared, Split
from minirt.protocol.manifest import CheckpointPaths, Reference
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.operators.aggregate import AggregateOperator
from minirt.runtime.operators.base import Emit, Operator, OperatorContext, opening_error
from minirt.runtime.operators.columns import FilterColumnsOperator, ProjectOperator
from minirt.runtime.operators.keyed import KeyedProcessOperator, ReduceOperator
from minirt.runtime.operators.sink import SinkOperator
from minirt.runtime.operators.source import SourceOperator
from minirt.runtime.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapBatchesOperator,
    MapOperator,
    ProcessOperator,
)
from minirt.runtime.operators.window import WindowOperator
from minirt.runtime.output import LinkOutput
from minirt.state.sections import Section
from minirt.state.stored import UID_SEPARATOR


@dataclass(frozen=True, slots=True)
class ChainContext:
    """What the operators of a chain are built from."""

    subtask: SubtaskId
    generation: int
    splits: Sequence[tuple[int, Split]]
    now: Callable[[], float]
    watermark_interval_s: float
    source_poll_s: float
    allow_pickle: bool
    metrics: SubtaskMetrics


class Chain:
    """The first operator takes the input; the last one feeds the links."""

    def __init__(self, vertex: Vertex, links: Sequence[LinkOutput], context: ChainContext) -> None:
        self._vertex = vertex
        self._links = links
        emit = _fan_out(
            [link.emit for link in links if link.link.tag is None],
        )
        operators: list[Operator] = []
        for node in reversed(vertex.operators):
            operator = _build(node, self._context(node, emit, context), context)
            operators.insert(0, operator)
            emit = partial(_feed, operator)
        self.operators = operators
        self.head = operators[0]

    @property
    def source(self) -> SourceOperator | None:
        return self.head if isinstance(self.head, SourceOperator) else None

    def open(self) -> None:
        """Open from the end, so that nobody emits into an operator that is not yet open."""
        for operator in reversed(self.operators):
            try:
                operator.open()
            except Exception as error:
                raise opening_error(operator.ctx.label, error) from error

    def process(self, batch: Batch, input_index: int) -> None:
        _feed(self.head, batch, input_index)

    def emit_from_source(self, batch: Batch) -> None:
        self.head.ctx.emit(batch)

    def on_watermark(self, watermark: int) -> Iterator[None]:
        for operator in self.operators:
            yield from operator.on_watermark(watermark)

    def on_end(self) -> Iterator[None]:
        """End event time, operator by operator: what one still emits is not late for the next."""
        for operator in self.operators:
            yield from operator.on_watermark(MAX_WATERMARK)
            yield from operator.on_end()

    def snapshot(self) -> dict[str, Section]:
        """The state of all operators by uid and section; raises UserCodeError if it cannot be stored.

        So do sections that are made later.
        """
        sections: dict[str, Section] = {}
        for operator in self.operators:
            uid, label = operator.ctx.uid, operator.ctx.label
            with _storing(label):
                own = operator.snapshot()
            sections |= {
                f"{uid}{UID_SEPARATOR}{name}": _labelled(section, label)
                for name, section in own.items()
            }
        return sections

    def references(self) -> tuple[Reference, ...]:
        """What the last snapshot builds on, oldest first."""
        sections: dict[str, list[str]] = {}
        for operator in self.operators:
            for name, paths in operator.builds_on().items():
                for path in paths:
                    own = sections.setdefault(path, [])
                    own.append(f"{operator.ctx.uid}{UID_SEPARATOR}{name}")
        return tuple(
            Reference(path, tuple(sections[path]))
            for path in sorted(sections, key=CheckpointPaths.age_of)
        )

    def on_stored(self, path: str) -> None:
        """The last snapshot is in this file."""
        for operator in self.operators:
            operator.on_stored(path)

    def prepare(self, checkpoint_id: int) -> list[tuple[str, Prepared]]:
        """The pending output of the chain's sink, if it has one, with its uid."""
        prepared = [(op.ctx.uid, op.prepare(checkpoint_id)) for op in self.operators]
        return [(uid, output) for uid, output in prepared if output is not None]

    def restore(
        self, uid: str, sections: Mapping[str, bytes], *, exact: bool, path: str | None
    ) -> None:
        """Give an operator what an old snapshot holds of it.

        `path` is the file that later snapshots may refer to for just this, None if there is none.
        """
        prefix = uid + UID_SEPARATOR
        own = {
            name[len(prefix) :]: data for name, data in sections.items() if name.startswith(prefix)
        }
        operator = next(op for op in self.operators if op.ctx.uid == uid)
        if own:
            operator.restore(own, exact=exact)
            if path is not None:
                operator.on_stored(path)

    def close(self) -> None:
        for operator in self.operators:
            operator.close()

    def _context(self, node: OperatorNode, emit: Emit, context: ChainContext) -> OperatorContext:
        return OperatorContext(
            label=node.label,
            uid=node.uid,
            subtask=context.subtask.index,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            generation=context.generation,
            now=context.now,
            allow_pickle=context.allow_pickle,
            emit=emit,
            side=self._sides(node.uid),
            metrics=context.metrics,
        )

    def _sides(self, uid: str) -> Callable[[str], Emit]:
        by_tag: dict[str, list[Emit]] = {}
        for link in self._links:
            if link.link.source_uid == uid and link.link.tag is not None:
                by_tag.setdefault(link.link.tag, []).append(link.emit)
        emits = {tag: _fan_out(targets) for tag, targets in by_tag.items()}
        return lambda tag: emits.get(tag, _drop)


def _build(node: OperatorNode, ctx: OperatorContext, chain: ChainContext) -> Operator:
    match node.spec:
        case SourceSpec():
            return SourceOperator(
                ctx, node.spec, chain.splits, chain.watermark_interval_s, chain.source_poll_s
            )
        case MapSpec(function):
            return MapOperator(ctx, function)
        case FlatMapSpec(function):
            return FlatMapOperator(ctx, function)
        case CoMapSpec(left, right, flat):
            return FlatMapOperator(ctx, left, right) if flat else MapOperator(ctx, left, right)
        case FilterSpec(predicate):
            return FilterOperator(ctx, predicate)
        case FilterColumnsSpec(condition):
            return FilterColumnsOperator(ctx, condition)
        case ProjectSpec(kept, computed):
            return ProjectOperator(ctx, kept, computed)
        case MapBatchesSpec(function, format):
            return MapBatchesOperator(ctx, function, format)
        case ProcessSpec(process):
            return ProcessOperator(ctx, process)
        case ReduceSpec(key, function):
            return ReduceOperator(ctx, key.on_rows(), function)
        case AggregateSpec():
            return AggregateOperator(ctx, node.spec)
        case WindowSpec():
            return WindowOperator(ctx, node.spec)
        case KeyedProcessSpec(key, keyed):
            return KeyedProcessOperator(ctx, (key.on_rows(),), keyed)
        case KeyedCoProcessSpec(left_key, right_key, co):
            return KeyedProcessOperator(ctx, (left_key.on_rows(), right_key.on_rows()), co)
        case SinkSpec(sink):
            return SinkOperator(ctx, sink)


@contextmanager
def _storing(label: str) -> Iterator[None]:
    try:
        yield
    except UnsupportedRecordError as error:
        raise UserCodeError(f"state of operator {label}: {error}") from error


def _labelled(section: Section, label: str) -> Section:
    """The same; what goes wrong when it is made names the operator."""
    if not callable(section):
        return section
    make = section

    def made() -> bytes:
        with _storing(label):
            return make()

    return made


def _feed(operator: Operator, batch: Batch, input_index: int = 0) -> None:
    try:
        operator.process(batch, input_index)
    except UnsupportedRecordError as error:
        raise UserCodeError(f"operator {operator.ctx.label}: {error}") from error


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
    """Records that nobody asked for."""
