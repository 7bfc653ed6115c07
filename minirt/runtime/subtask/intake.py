"""Where an operator of a chain gets its batches: from its input, or from the one that feeds it."""

from __future__ import annotations

from collections.abc import Callable

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import UnsupportedValueError
from minirt.operators.common.base import Operator


class Intake:
    """Gives an operator of a chain its batches, and names it in errors."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def take(self, batch: Batch, input_index: int = 0) -> None:
        """Have records processed that nobody else gets."""
        try:
            self._operator.process(batch, input_index)
        except UnsupportedRecordError as error:
            raise self._unsupported(error) from error

    def share(self, batch: Batch, copied: Callable[[Batch], Batch]) -> None:
        """Have records processed that others get as well; see `Operator.process_shared`."""
        if isinstance(batch, Columns):
            self.take(copied(batch))
            return
        try:
            self._operator.process_shared(batch, copied)
        except UnsupportedRecordError as error:
            raise self._unsupported(error) from error

    def _unsupported(self, error: UnsupportedRecordError) -> UnsupportedValueError:
        return UnsupportedValueError(f"operator {self._operator.ctx.label}: {error}")


class WatchedIntake(Intake):
    """Finds out whether the operator changes what it is given, which is its own in any case."""

    def take(self, batch: Batch, input_index: int = 0) -> None:
        custody = self._operator.ctx.custody
        if isinstance(batch, Rows):
            custody.watch(batch.records)
        super().take(batch, input_index)
        custody.check()

    def share(self, batch: Batch, copied: Callable[[Batch], Batch]) -> None:
        self.take(copied(batch))
