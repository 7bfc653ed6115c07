"""The beginning of a stream: what is read, and how its event time is told.

It builds no operator: the input of a subtask reads, see `minirt.runtime.input.source_input`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt.graph.operator_spec import (
    Form,
    Forms,
    OperatorSpec,
    Reading,
    Site,
    StateDealing,
    class_name,
)
from minirt.io.base import Source
from minirt.operators.common.checks import check_column, check_instance
from minirt.operators.common.functions import check_function
from minirt.operators.common.reader_checks import check_readers
from minirt.watermarks import WatermarkGenerator, Watermarks

ERRORS_TAG = "errors"
"""The side output that carries what a source could not parse."""


@dataclass(frozen=True, slots=True)
class SourceSpec(OperatorSpec):
    kind: ClassVar = "source"
    inputs: ClassVar = 0
    state: ClassVar = StateDealing.BY_OPERATOR
    takes: ClassVar = None

    source: Source
    watermarks: Watermarks | None = None
    speed: float | None = None
    """Replay at this multiple of event time; None is as fast as possible."""

    @property
    def default_name(self) -> str:
        return class_name(self.source) if isinstance(self.source, Source) else self.kind

    @property
    def details(self) -> str:
        if not isinstance(self.watermarks, Watermarks):
            return ""
        text = f", watermarks {_words(self.watermarks)}"
        return text if self.speed is None else f"{text}, speed {self.speed:g}"

    def check(self, site: Site) -> None:
        label = site.label
        check_instance(self.source, Source, label)
        check_readers(self.source, label)
        if self.watermarks is not None:
            _check_watermarks(self.watermarks, self._columns(label), label)
        if self.speed is None:
            return
        if isinstance(self.speed, bool) or not isinstance(self.speed, int | float):
            raise ConfigurationError(f"{label}: speed is a number, not {self.speed!r}")
        if not 0 < self.speed < float("inf"):
            raise ConfigurationError(
                f"{label}: speed must be above 0 and finite, got {self.speed!r}"
            )
        if self.watermarks is None:
            raise ConfigurationError(
                f"{label}: speed paces records by their event time, so it needs watermarks as well"
            )

    def validate(self, label: str) -> None:
        try:
            self.source.validate()
        except ConfigurationError as error:
            raise ConfigurationError(f"{label}: {error}") from error

    def output_schema(self, site: Site) -> pa.Schema | None:
        return self._columns(site.label)

    def side_output(self, tag: str, label: str) -> Form:
        if tag != ERRORS_TAG:
            raise ConfigurationError(
                f"{label}: a source has one side output, {ERRORS_TAG!r}, and no {tag!r}"
            )
        if not self.source.side_errors:
            raise ConfigurationError(
                f"{label}: this source sends nothing to the side output {ERRORS_TAG!r}; "
                "have it send there what does not parse"
            )
        return Form.ROWS

    def crossing(self, arriving: Forms, schema: pa.Schema | None) -> str | None:
        if schema is None or not self._stamped_by_function:
            return None
        return "columns become rows: a function takes the timestamp from each record"

    def gives(self, arriving: Forms, schema: pa.Schema | None) -> Forms:
        """Columns if the source knows its schema; of one that does not, rows are expected."""
        columns = schema is not None and not self._stamped_by_function
        return {Form.COLUMNS if columns else Form.ROWS}

    @property
    def in_arrays(self) -> bool:
        return self.source.in_arrays

    @property
    def reading(self) -> Reading:
        return Reading(self.source, self.watermarks, self.speed)

    @property
    def _stamped_by_function(self) -> bool:
        return self.watermarks is not None and callable(self.watermarks.timestamp)

    def _columns(self, label: str) -> pa.Schema | None:
        try:
            return self.source.schema()
        except ConfigurationError as error:
            raise ConfigurationError(f"{label}: {error}") from error


def _check_watermarks(watermarks: Any, schema: pa.Schema | None, label: str) -> None:
    check_instance(watermarks, Watermarks, label)
    if isinstance(watermarks.timestamp, str):
        _check_time(watermarks.timestamp, schema, label)
    else:
        check_function(watermarks.timestamp, label, "the record", returns="the event time")
    if watermarks.column is not None:
        _check_time(watermarks.column, schema, label)
    if watermarks.generator is not None:
        _check_generator(watermarks.generator, label)


def _check_time(column: str, schema: pa.Schema | None, label: str) -> None:
    check_column(column, schema, label)
    kind = None if schema is None else schema.field(column).type
    if kind is not None and not _is_time(kind):
        raise ConfigurationError(
            f"{label}: column {column!r} is of type {kind}; event time is a timestamp, a date or "
            "whole milliseconds"
        )


def _check_generator(generator: Callable[[], Any], label: str) -> None:
    """See what it makes: a job should not start only to fail at its first record."""
    if isinstance(generator, WatermarkGenerator):
        made: Any = generator
        what = "one object for all splits"
    else:
        check_function(generator, label)
        try:
            made = generator()
        except Exception as error:
            raise ConfigurationError(
                f"{label}: no watermark generator can be made: {type(error).__name__}: {error}"
            ) from error
        if isinstance(made, WatermarkGenerator):
            return
        what = f"what makes {type(made).__name__}"
    raise ConfigurationError(
        f"{label}: Watermarks.generated takes a class, or a function without arguments, that makes a "
        f"rt.WatermarkGenerator for each split; it was given {what}"
    )


def _words(watermarks: Watermarks) -> str:
    often = ", per record" if watermarks.emit == "per record" else ""
    if watermarks.generator is not None:
        return f"by {class_name(watermarks.generator)}{often}"
    if watermarks.column is not None:
        return f"from column {watermarks.column!r}{often}"
    return f"{watermarks.bound_ms / 1000:g} s behind{often}"


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind))
