"""JSON objects straight into columns, by the reader of Arrow: no Python object for any record."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyarrow import json as pa_json

from minirt.data.simple_columns import in_finer_type
from minirt.errors import ConfigurationError
from minirt.io.schemas import given_schema


def read_objects(
    text: bytes, rows: int, schema: pa.Schema, *, one_a_line: bool = False
) -> pa.RecordBatch:
    """The columns of `schema` of so many JSON objects; fields that it does not name are left out.

    Without `one_a_line` an object may go over several lines. Raises ArrowInvalid unless the text has as
    many objects, and all fit.
    """
    table = pa_json.read_json(
        pa.BufferReader(text),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=_finer(schema),
            unexpected_field_behavior="ignore",
            newlines_in_values=not one_a_line,
        ),
    )
    if table.num_rows != rows:
        raise pa.ArrowInvalid(f"{table.num_rows} JSON objects instead of {rows}")
    [batch] = table.combine_chunks().to_batches()
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"column {field.name!r} must not be null")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@lru_cache
def _finer(schema: pa.Schema) -> pa.Schema:
    """Arrow reads no second with more digits than its type has, even if they are zeros; a cast does."""
    return pa.schema([field.with_type(in_finer_type(field.type)) for field in schema])


def read_lines(text: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` of lines. Raises ArrowInvalid unless every line is one object that fits."""
    data = np.frombuffer(text, np.uint8)
    starts = np.flatnonzero(data[:-1] == ord("\n")) + 1
    # Where each line begins an object there is one for each, or more: as many means one each.
    if data[0] != ord("{") or not (data[starts] == ord("{")).all():
        raise pa.ArrowInvalid("there is no JSON object")
    return read_objects(text, len(starts) + 1, schema, one_a_line=True)


def checked_schema(schema: object) -> pa.Schema:
    """A schema that objects can be read by. Raises ConfigurationError for any other."""
    checked = given_schema(schema)
    for field in checked:
        try:
            read_objects(b"{}", 1, pa.schema([field.with_nullable(True)]))
        except pa.ArrowException as error:
            raise ConfigurationError(
                f"schema: column {field.name!r} cannot be read from JSON as {field.type}: {error}"
            ) from error
    return checked
