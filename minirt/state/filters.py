"""The conditions of aggregates: which records of a batch count for which of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Aggregate
from minirt.data.expressions import Conditions, ExpressionError
from minirt.errors import UserCodeError
from minirt.state.numbers import Mask


class Filters:
    """Evaluates each different condition once a batch, however many aggregates share it."""

    def __init__(self, aggregates: Sequence[Aggregate], label: str) -> None:
        self._aggregates = aggregates
        self._label = label
        self._different: list[pc.Expression] = []
        self._places = [self._place(aggregate.where) for aggregate in aggregates]
        self._conditions = Conditions(self._different)

    def masks(self, batch: pa.RecordBatch) -> list[Mask | None]:
        """The records that count for each aggregate; None stands for all. Raises UserCodeError."""
        if not self._different:
            return [None] * len(self._places)
        try:
            found = self._conditions.masks(batch)
        except ExpressionError as error:
            raise self._named(batch, error) from error
        return [None if place is None else found[place] for place in self._places]

    def _place(self, where: pc.Expression | None) -> int | None:
        if where is None:
            return None
        for place, known in enumerate(self._different):
            if known.equals(where):
                return place
        self._different.append(where)
        return len(self._different) - 1

    def _named(self, batch: pa.RecordBatch, error: ExpressionError) -> UserCodeError:
        """The error with the name of the first aggregate whose condition has no value."""
        for aggregate in self._aggregates:
            try:
                if aggregate.where is not None:
                    Conditions([aggregate.where]).masks(batch)
            except ExpressionError as own:
                return UserCodeError(f"operator {self._label}: {aggregate.output!r}, where: {own}")
        return UserCodeError(f"operator {self._label}, where: {error}")
