"""`map_batches`: a batch for each, as a list of records or as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import ConfigurationError, SourceDataError, UserCodeError
from minirt.graph.operator_spec import (
    Form,
    Gathering,
    OperatorSpec,
    Site,
    StateDealing,
    function_name,
)
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.carried_times import NotTold, RowTimes, times_of_columns
from minirt.operators.common.columns import check_names, to_columns
from minirt.operators.common.functions import check_function
from minirt.operators.event_time import stamper_by
from minirt.units import positive
from minirt.watermarks import TimestampSpec

BATCH_SIZE_MAX = 1 << 20
"""How many records are gathered at most."""


@dataclass(frozen=True, slots=True)
class MapBatchesSpec(OperatorSpec):
    """`function` maps a list to a list, or with format "columns" a RecordBatch to a RecordBatch.

    With `size` it gets so many records, or what there is `wait_s` seconds after the first of them.
    `timestamp` is the column or function that tells the event time of results.
    """

    kind: ClassVar = "map_batches"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE

    function: Callable[[Any], Any]
    format: Literal["rows", "columns"] = "rows"
    size: int | None = None
    wait_s: float = 0.0
    timestamp: TimestampSpec | None = None

    @property
    def takes(self) -> Form:
        return Form.COLUMNS if self.format == "columns" else Form.ROWS

    @property
    def reason(self) -> str:
        return (
            f"the function takes {'columns' if self.format == 'columns' else 'a list of records'}"
        )

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    def check(self, site: Site) -> None:
        if self.format not in ("rows", "columns"):
            raise ConfigurationError(
                f'{site.label}: format must be "rows" or "columns", got {self.format!r}'
            )
        check_function(self.function, site.label, "the batch", returns="a batch")
        if callable(self.timestamp):
            check_function(self.timestamp, site.label, "the record")
        elif self.timestamp is not None and (
            not isinstance(self.timestamp, str) or not self.timestamp
        ):
            raise ConfigurationError(
                f"{site.label}: timestamp is a column name or a function, not {self.timestamp!r}"
            )
        if self.size is None:
            if self.wait_s:
                raise ConfigurationError(f"{site.label}: wait has no effect without size")
            return
        if positive(f"{site.label}: size", self.size) > BATCH_SIZE_MAX:
            raise ConfigurationError(
                f"{site.label}: size is at most {BATCH_SIZE_MAX}, got {self.size}"
            )
        if self.size == 1 and self.wait_s:
            raise ConfigurationError(
                f"{site.label}: wait has no effect with size=1: one record is there"
            )

    @property
    def repeats_batches(self) -> bool:
        """Batches of a size of its own also depend on how long records have waited."""
        return self.size is None

    @property
    def gathers(self) -> Gathering | None:
        return None if self.size is None else Gathering(self.size, self.wait_s, whole=True)

    def build(self, ctx: OperatorContext) -> Operator:
        return MapBatchesOperator(ctx, self.function, self.format, self.timestamp)


class MapBatchesOperator(Operator):
    """Results have the event time that `timestamp` tells, or keep the one of the record they come from.

    Which that is must not depend on where batches begin and end. So it fails where nothing tells it.
    """

    def __init__(
        self,
        ctx: OperatorContext,
        function: Any,
        format: str,
        timestamp: TimestampSpec | None = None,
    ) -> None:
        super().__init__(ctx)
        self._function = function
        self._trusted = ctx.custody.trusts(function)
        self._columns = format == "columns"
        self._stamp = None if timestamp is None else stamper_by(timestamp)

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        if self._columns:
            self._process_columns(batch)
            return
        rows = batch.rows()
        times = rows.timestamps
        count = len(rows.records)
        keeping = None
        if times is not None and self._stamp is None:
            keeping = RowTimes(rows.records, times)
        with Calling(self.ctx.label, otherwise=rows.records):
            results = self._function(rows.records)
        if not isinstance(results, list):
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches must return a list, not "
                f"{type(results).__name__}"
            )
        if not results:
            return
        if times is not None:
            try:
                stamped = self._stamped(results) if keeping is None else keeping.of(results)
            except NotTold:
                raise self._not_told(count, len(results)) from None
            times = [*stamped]
        self.ctx.emit(Rows(self.ctx.custody.take_all(results), times))

    def _process_columns(self, batch: Batch) -> None:
        columns = to_columns(batch, self.ctx.label)
        with Calling(self.ctx.label, otherwise=columns):
            table = self._function(columns.table)
        if not isinstance(table, pa.RecordBatch):
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches must return a pyarrow.RecordBatch, not "
                f"{type(table).__name__}"
            )
        try:
            check_names(table)
        except ValueError as error:
            raise UserCodeError(f"operator {self.ctx.label}: map_batches: {error}") from error
        if not table.num_rows:
            return
        times = columns.timestamps
        if times is not None and self._stamp is not None:
            times = np.asarray(self._stamped(table), np.int64)
        elif times is not None:
            try:
                times = times_of_columns(columns, table)
            except NotTold:
                raise self._not_told(len(columns), table.num_rows) from None
        own = table if self._trusted else self.ctx.custody.take_columns(table)
        self.ctx.emit(Columns(own, times))

    def _stamped(self, results: list[Any] | pa.RecordBatch) -> Sequence[int]:
        """The event times that `timestamp` tells."""
        assert self._stamp is not None
        try:
            with Calling(self.ctx.label):
                times = self._stamp(results).timestamps
        except SourceDataError as error:
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches, event time of results: {error}"
            ) from error
        assert times is not None
        return times  # type: ignore[return-value]

    def _not_told(self, given: int, returned: int) -> UserCodeError:
        return UserCodeError(
            f"operator {self.ctx.label}: map_batches was given {given} records with event time and "
            f"returned {returned}, and nothing tells which event time each of these has. Say it with "
            "timestamp=, a column or a function of the results; or return one result for each record, in "
            "their order; or leave the column with the event time as it is. filter and flat_map keep event "
            "time, too"
        )
