"""JSON: each value is one object, or one JSON value of any kind where records are rows."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch
from minirt.io.json_columns import explained, read_lines, read_objects
from minirt.io.json_text import JsonlEncoder, OnNan
from minirt_connectors.kafka.formats.base import Format, Undecodable

_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_ERRORS = (ValueError, StopIteration, RecursionError, AttributeError)


class JsonFormat(Format):
    """Rows as `json.loads` gives them; with a schema, columns as the JSON reader of Arrow gives them."""

    def __init__(self, schema: pa.Schema | None = None, nan: OnNan = "error") -> None:
        self._schema = schema
        self._nan = nan

    def decode(self, values: Sequence[bytes | None]) -> list[Any] | pa.RecordBatch:
        return _rows(values) if self._schema is None else _columns(values, self._schema)

    def encode(self, batch: Batch, operator: str) -> Sequence[bytes | None]:
        return json_lines(batch, operator, self._nan)

    def schema(self) -> pa.Schema | None:
        return self._schema


def json_lines(batch: Batch, operator: str, nan: OnNan) -> list[bytes]:
    """The records as JSON, which never has an end of line in it."""
    stream = io.BytesIO()
    JsonlEncoder(stream, operator, nan).write(batch)
    return stream.getvalue().split(b"\n")[:-1]


def _rows(values: Sequence[bytes | None]) -> list[Any]:
    try:
        texts = [value.decode() for value in values]  # type: ignore[union-attr]
        scanned = [_scan(text, 0) for text in texts]
        if [end for _, end in scanned] == list(map(len, texts)):
            return [record for record, _ in scanned]
    except _ERRORS:
        pass
    return _one_by_one(values)


def _one_by_one(values: Sequence[bytes | None]) -> list[Any]:
    """For values with blanks around them, or that are no JSON."""
    good: list[Any] = []
    bad: list[tuple[int, str]] = []
    for place, value in enumerate(values):
        try:
            if value is None:
                raise ValueError("there is no value")
            good.append(json.loads(value.decode()))
        except (ValueError, RecursionError) as error:
            bad.append((place, f"not valid JSON ({error})"))
    if bad:
        raise Undecodable(good, bad)
    return good


def _columns(values: Sequence[bytes | None], schema: pa.Schema) -> pa.RecordBatch:
    try:
        text = b"\n".join([*values, b""])  # type: ignore[list-item]
        if values and text.count(b"\n") == len(values):
            return read_lines(text, schema)
        # Where each value begins an object there is one row for each, or more: as many means one each.
        if all(value[:1] == b"{" for value in values):  # type: ignore[index]
            return read_objects(text, len(values), schema)
    except (TypeError, pa.ArrowException):  # A value that is none, or one that does not fit.
        pass
    tables: list[pa.RecordBatch] = []
    bad: list[tuple[int, str]] = []
    for place, value in enumerate(values):
        try:
            text = (value or b"").strip()
            if text[:1] != b"{":
                raise pa.ArrowInvalid("there is no JSON object")
            tables.append(read_objects(text, 1, schema))
        except pa.ArrowException as error:
            reason = explained(text, schema, error) if text[:1] == b"{" else str(error)
            bad.append((place, f"not valid JSON for the schema ({reason})"))
    good = pa.Table.from_batches(tables, schema).combine_chunks().to_batches()
    whole = good[0] if good else pa.RecordBatch.from_pylist([], schema)
    if bad:
        raise Undecodable(whole, bad)
    return whole
