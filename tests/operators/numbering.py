"""An operator of another package: it imports nothing of minirt but what is public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.data.batch import Batch, Rows
from minirt.errors import ConfigurationError
from minirt.operators import (
    Form,
    KeyedOperator,
    Operator,
    OperatorContext,
    OperatorSpec,
    Site,
    StateDealing,
    check_stored_keys,
)


@dataclass(frozen=True, slots=True)
class Numbering(OperatorSpec):
    """Numbers the records of a key, whichever input they come through: `(key, number, record)`.

    Every n-th record of a key goes to the side output "nth".
    """

    kind: ClassVar = "numbering"
    inputs: ClassVar = 2
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.ROWS

    nth: int

    def check(self, site: Site) -> None:
        if self.nth < 1:
            raise ConfigurationError(f"{site.label}: nth must be above 0, got {self.nth}")

    def side_output(self, tag: str, label: str) -> Form:
        if tag != "nth":
            raise ConfigurationError(f"{label} has one side output, 'nth', and no {tag!r}")
        return Form.ROWS

    def build(self, ctx: OperatorContext) -> Operator:
        return NumberingOperator(ctx, self.nth)


class NumberingOperator(KeyedOperator):
    def __init__(self, ctx: OperatorContext, nth: int) -> None:
        super().__init__(ctx)
        self._nth = nth
        self._counts = self.state.table("count")
        self._keys = [key.on_rows() for key in ctx.keys]
        self._side = ctx.side("nth")

    def process(self, batch: Batch, input_index: int) -> None:
        rows, key_of = batch.rows(), self._keys[input_index]
        keys = [key_of(record) for record in rows.records]
        times = rows.timestamps or [None] * len(keys)
        check_stored_keys(keys, rows.records, self.ctx.label)
        self.state.change(keys)
        main: list[Any] = []
        side: list[Any] = []
        for key, record, time in zip(keys, rows.records, times, strict=True):
            self._counts[key] = number = self._counts.get(key, 0) + 1
            (main if number % self._nth else side).append(((key, number, record), time))
        for emit, numbered in ((self.ctx.emit, main), (self._side, side)):
            if numbered:
                records, stamps = map(list, zip(*numbered, strict=True))
                emit(Rows(records, stamps if rows.timestamps else None))
