"""The operator at the end of a stream: hands records to the user's sink."""

from __future__ import annotations

from minirt.data.batch import Batch
from minirt.io.base import Prepared, Sink, SinkContext, SinkWriter
from minirt.runtime.operators.base import Operator, OperatorContext, user_error


class SinkOperator(Operator):
    def __init__(self, ctx: OperatorContext, sink: Sink) -> None:
        super().__init__(ctx)
        self._sink = sink
        self._writer: SinkWriter | None = None

    def open(self) -> None:
        ctx = self.ctx
        self._writer = self._sink.open_writer(
            SinkContext(ctx.label, ctx.subtask, ctx.parallelism, ctx.generation)
        )

    def process(self, batch: Batch, input_index: int) -> None:
        assert self._writer is not None
        try:
            self._writer.write(batch)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error

    def prepare(self, checkpoint_id: int) -> Prepared | None:
        assert self._writer is not None
        prepared = self._writer.prepare(checkpoint_id)
        return prepared if prepared.handles or prepared.finish else None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
