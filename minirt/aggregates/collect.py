"""`Collect`: the values themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from minirt.aggregates.basic import Accumulated, at_least_one
from minirt.state.accumulator import Accumulator, ObjectsByKey


@dataclass(frozen=True)
class Collect(Accumulated):
    """The values as a list, those that came first first, nulls left out; the first `limit` of them.

    What several panes of a window or several sessions hold is in the order of their event time.
    """

    repeats: ClassVar = True

    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            at_least_one("Collect", self.column, "limit", self.limit)

    @property
    def computes(self) -> str:
        return super().computes + (f", {self.limit}" if self.limit else "")

    def result_type(self, type: pa.DataType) -> pa.DataType:
        return type if pa.types.is_null(type) else pa.list_(type)

    def accumulator(self, type: pa.DataType) -> Accumulator:
        return _Lists(type, self.result_type(type), self.limit)


class _Lists(ObjectsByKey):
    def __init__(self, type: pa.DataType, result: pa.DataType, limit: int | None) -> None:
        super().__init__(type, result)
        self._limit = limit

    def of(self, values: pa.Array) -> Any:
        return values.drop_null()[: self._limit].to_pylist() or None

    def united(self, earlier: Any, later: Any) -> Any:
        earlier += later
        if self._limit is not None:
            del earlier[self._limit :]
        return earlier

    def shown(self, held: Any) -> Any:
        return held

    def copied(self, held: Any) -> Any:
        return list(held)
