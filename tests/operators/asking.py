"""An operator that asks a slow function beside the record path: a toy of asynchronous requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgpack

from minirt.data.batch import Batch, Rows
from minirt.operators import (
    Form,
    Operator,
    OperatorContext,
    OperatorSpec,
    StateDealing,
    Step,
    Wait,
)

_REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class Asking(OperatorSpec):
    """Calls a function for each record. The answers leave in the order in which they come."""

    kind: ClassVar = "asking"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_OPERATOR
    takes: ClassVar = Form.ROWS

    function: Callable[[Any], Any]

    def build(self, ctx: OperatorContext) -> Operator:
        return AskingOperator(ctx, self.function)


class AskingOperator(Operator):
    """A request is part of a snapshot until its answer is emitted; the answer is too, if it has come."""

    def __init__(self, ctx: OperatorContext, function: Callable[[Any], Any]) -> None:
        super().__init__(ctx)
        self._function = function
        self._open: dict[int, Any] = {}
        """Requests by number."""
        self._asked = 0
        self._restored: list[tuple[Any, list[Any]]] = []

    def open(self) -> None:
        for record, answers in self._restored:
            number = self._number(record)
            if answers:
                self.ctx.mailbox.put((number, answers[0]))
            else:
                self._ask(number, record)

    def process(self, batch: Batch, input_index: int) -> None:
        for record in batch.rows().records:
            self._ask(self._number(record), record)

    def on_mail(self) -> None:
        answers = []
        while (mail := self.ctx.mailbox.take()) is not None:
            number, answer = mail
            del self._open[number]
            answers.append(answer)
        self.ctx.emit(Rows(answers))

    def on_end(self) -> Iterator[Step]:
        while self._open:
            yield Wait.FOR_MAIL

    def snapshot(self) -> Mapping[str, bytes]:
        answers = dict(self.ctx.mailbox.waiting())
        requests = [
            (record, [answers[number]] if number in answers else [])
            for number, record in self._open.items()
        ]
        return {_REQUESTS: msgpack.packb(requests)}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        requests = msgpack.unpackb(sections[_REQUESTS])
        self._restored += requests if exact else requests[self.ctx.subtask :: self.ctx.parallelism]

    def _number(self, record: Any) -> int:
        self._asked += 1
        self._open[self._asked] = record
        return self._asked

    def _ask(self, number: int, record: Any) -> None:
        self.ctx.run_beside(lambda: self.ctx.mailbox.put((number, self._function(record))))
