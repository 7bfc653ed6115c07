"""Bytes as they are: records hold them in the column `value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch, Columns
from minirt.errors import SinkDataError
from minirt_connectors.kafka.formats.base import Format

VALUE = "value"
_SCHEMA = pa.schema([pa.field(VALUE, pa.binary())])


class RawFormat(Format):
    """Columns with one column `value` of bytes, null for a record without a value."""

    in_arrays = True

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=_SCHEMA)

    def encode(self, batch: Batch, operator: str) -> Sequence[bytes | None]:
        if isinstance(batch, Columns) and VALUE in batch.table.schema.names:
            values: list[Any] = batch.table.column(VALUE).to_pylist()
        else:
            values = [_value(record, operator) for record in batch.rows().records]
        return [_bytes(value, operator) for value in values]

    def schema(self) -> pa.Schema:
        return _SCHEMA


def _value(record: Any, operator: str) -> Any:
    """A record may be the bytes themselves."""
    if isinstance(record, dict):
        if VALUE not in record:
            raise SinkDataError(
                f'{operator}: format="raw" writes the field "value": {record!r:.500}'
            )
        return record[VALUE]
    return record


def _bytes(value: Any, operator: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SinkDataError(
                f"{operator}: {value!r:.500} is no text of UTF-8: {error}"
            ) from error
    raise SinkDataError(f'{operator}: format="raw" writes bytes or text, not {value!r:.500}')
