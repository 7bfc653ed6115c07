"""The end of a stream: hands records to the user's sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError
from minirt.graph.operator_spec import OperatorSpec, Site, StateDealing, class_name
from minirt.io.base import Prepared, Sink, SinkContext, SinkIdentity, SinkWriter
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Reaching, Writing
from minirt.operators.common.checks import check_instance


@dataclass(frozen=True, slots=True)
class SinkSpec(OperatorSpec):
    kind: ClassVar = "sink"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_OPERATOR
    takes: ClassVar = None
    repeats: ClassVar = True
    emits: ClassVar = False

    sink: Sink

    @property
    def default_name(self) -> str:
        return class_name(self.sink) if isinstance(self.sink, Sink) else self.kind

    @property
    def owned(self) -> object | None:
        return self.sink

    @property
    def writes_to(self) -> Sink:
        return self.sink

    @property
    def in_arrays(self) -> bool:
        return self.sink.in_arrays

    def check(self, site: Site) -> None:
        check_instance(self.sink, Sink, site.label)

    def validate(self, label: str) -> None:
        try:
            self.sink.validate()
        except ConfigurationError as error:
            raise ConfigurationError(f"{label}: {error}") from error

    def build(self, ctx: OperatorContext) -> Operator:
        return SinkOperator(ctx, self.sink)


class SinkOperator(Operator):
    def __init__(self, ctx: OperatorContext, sink: Sink) -> None:
        super().__init__(ctx)
        self._sink = sink
        self._writer: SinkWriter | None = None

    def open(self) -> None:
        ctx = self.ctx
        self._writer = self._sink.open_writer(
            SinkContext(
                SinkIdentity(ctx.job, ctx.uid),
                ctx.label,
                ctx.subtask,
                ctx.parallelism,
                ctx.generation,
                ctx.staging,
            )
        )

    def process(self, batch: Batch, input_index: int) -> None:
        assert self._writer is not None
        with Writing(self.ctx.label, otherwise=batch):
            self._writer.write(batch)

    def on_end(self) -> Iterable[None]:
        self.release()
        return ()

    def release(self) -> None:
        assert self._writer is not None
        with Reaching(self.ctx.label, "could not release what it held back"):
            self._writer.release()

    def prepare(self, checkpoint_id: int) -> Prepared | None:
        assert self._writer is not None
        with Reaching(self.ctx.label, "could not hand over its output"):
            prepared = self._writer.prepare(checkpoint_id)
        return prepared if prepared.handles or prepared.finish else None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
