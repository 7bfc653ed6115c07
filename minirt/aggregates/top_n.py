"""`TopN`: the greatest or the least values, or those of the records with the greatest or the least."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa

from minirt.aggregates.basic import Accumulated, at_least_one, has_order, unfit
from minirt.errors import ConfigurationError
from minirt.state.accumulator import Accumulator, ObjectsByKey
from minirt.state.numbers import to_ordered


@dataclass(frozen=True)
class TopN(Accumulated):
    """The `n` greatest values as a list, the greatest first; the least ones with `least=True`.

    With `by`, the values of `column` in the records with the greatest values of that column. Of equal ones,
    those come first that came first. Records are left out whose value of `by`, or of the column without
    `by`, is null or NaN.
    """

    repeats: ClassVar = True

    n: int = 10
    by: str | None = None
    least: bool = False

    def __post_init__(self) -> None:
        at_least_one("TopN", self.column, "n", self.n)
        if not isinstance(self.least, bool):
            raise ConfigurationError(
                f"TopN of column {self.column!r}: least is True or False, not {self.least!r}"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        return super().inputs if self.by is None else (*super().inputs, self.by)

    @property
    def computes(self) -> str:
        order = "least" if self.least else "greatest"
        return f"{super().computes}, {self.n} {order} by {self.by or self.column}"

    @property
    def output(self) -> str:
        return self.name if self.name is not None else f"{self.column}_top"

    def result_type(self, type: pa.DataType) -> pa.DataType:
        value, by = (type, type) if self.by is None else (type.field(0).type, type.field(1).type)
        if not has_order(by):
            raise unfit(self, by, "values that have an order")
        return value if pa.types.is_null(value) else pa.list_(value)

    def accumulator(self, type: pa.DataType) -> Accumulator:
        return _Tops(type, self)


class _Tops(ObjectsByKey):
    """Holds pairs of what the order goes by, as `to_ordered` gives it, and a value, in their order."""

    def __init__(self, type: pa.DataType, top: TopN) -> None:
        super().__init__(type, top.result_type(type))
        self._top = top
        self._by = type if top.by is None else type.field(1).type

    def of(self, values: pa.Array) -> Any:
        taken, by = (values, values)
        if self._top.by is not None:
            taken, by = (values.field(place) for place in (0, 1))
        bys = to_ordered(by).to_pylist()
        pairs = ([by, value] for by, value in zip(bys, taken.to_pylist(), strict=True))
        return (
            self._first([by, value] for by, value in pairs if by is not None and by == by) or None
        )

    def united(self, earlier: Any, later: Any) -> Any:
        return self._first([*earlier, *later])

    def shown(self, held: Any) -> Any:
        return [value for _, value in held]

    def unpack(self, packed: bytes) -> Any:
        pairs = super().unpack(packed)
        bys = [by for by, _ in pairs]  # Times, in checkpoints of before.
        if pa.types.is_temporal(self._by):
            bys = to_ordered(pa.array(bys, self._by)).to_pylist()
        return [[by, value] for by, (_, value) in zip(bys, pairs, strict=True)]

    def _first(self, pairs: Iterable[Any]) -> list[Any]:
        # Sorting is stable also in reverse.
        ordered = sorted(pairs, key=itemgetter(0), reverse=not self._top.least)
        return ordered[: self._top.n]
