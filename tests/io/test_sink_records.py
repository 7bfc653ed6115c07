"""Which records the file formats hold, and what is said about the others."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import SinkDataError
from minirt.io import JsonlSink, ParquetSink

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])


def parquet(*batches: Batch, schema: pa.Schema | None = None) -> pa.Table:
    stream = io.BytesIO()
    encoder = ParquetSink("/tmp/unused", schema=schema).encoding("out")(stream)
    for batch in batches:
        encoder.write(batch)
    encoder.finish()
    return pq.read_table(pa.BufferReader(stream.getvalue()))


def jsonl(*records: Any) -> list[str]:
    stream = io.BytesIO()
    JsonlSink("/tmp/unused").encoding("out")(stream).write(Rows(list(records)))
    return stream.getvalue().decode().splitlines()


@pytest.mark.parametrize(
    ("record", "column", "reason"),
    [
        ({"id": 1}, "x", "missing"),
        ({"id": 1, "y": 1.0}, "[xy]", "missing|not in the schema"),
        ({"id": 1, "x": 1.0, "y": 2}, "y", "not in the schema"),
        ({"id": 1, "x": "much"}, "x", "much"),
        ({"id": None, "x": 1.0}, "id", "allows no None"),
        ({"id": 2**70, "x": 1.0}, "id", ""),
        ("text", r"\*", "must be dicts"),
    ],
)
def test_a_record_that_does_not_fit_is_named_with_operator_and_column(
    record: Any, column: str, reason: str
) -> None:
    good = {"id": 7, "x": 0.5}
    with pytest.raises(SinkDataError, match=f"out: column '{column}': .*({reason})") as caught:
        parquet(Rows([good, record, good]), schema=SCHEMA)
    assert repr(record) in str(caught.value)
    assert "id int64, x double" in str(caught.value)


def test_columns_are_reordered_and_cast_where_nothing_is_lost() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array([1], pa.int32()), "id": [5]})
    table = parquet(Columns(batch), schema=SCHEMA)
    assert table.to_pylist() == [{"id": 5, "x": 1.0}]
    with pytest.raises(SinkDataError, match=r"'id': .*truncated"):
        parquet(Columns(pa.RecordBatch.from_pydict({"id": [1.5], "x": [1.0]})), schema=SCHEMA)
    batch = pa.RecordBatch.from_pydict({"id": [1], "x": [1.0], "z": [1]})
    with pytest.raises(SinkDataError, match="'z': not in the schema"):
        parquet(Columns(batch), schema=SCHEMA)


def test_columns_must_not_hold_none_in_a_column_that_is_not_nullable() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, None], "x": [1.0, 2.0]})
    with pytest.raises(SinkDataError, match=r"column 'id': None.*in record .*2.0"):
        parquet(Columns(batch), schema=SCHEMA)


@pytest.mark.parametrize(
    ("kind", "fits", "loses"),
    [
        (pa.int64(), 2.0, 1.5),
        (pa.int64(), 3, Decimal("1.5")),
        (pa.timestamp("ms"), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, microsecond=1)),
        (pa.date32(), dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5)),
        (pa.list_(pa.int64()), [2.0], [1.5]),
    ],
)
def test_a_value_that_the_schema_would_cut_is_refused(
    kind: pa.DataType, fits: Any, loses: Any
) -> None:
    schema = pa.schema([("a", kind)])
    assert parquet(Rows([{"a": fits}]), schema=schema).to_pylist() == [{"a": fits}]
    with pytest.raises(SinkDataError, match="column 'a'"):
        parquet(Rows([{"a": loses}]), schema=schema)


def test_the_first_batch_fixes_the_schema_of_the_writer() -> None:
    encoding = ParquetSink("/tmp/unused").encoding("out")
    encoding(io.BytesIO()).write(Rows([{"a": 1}, {"a": None}]))
    with pytest.raises(SinkDataError, match=r"'a'.*1\.5"):
        encoding(io.BytesIO()).write(Rows([{"a": 1.5}]))


def test_a_column_of_nothing_but_none_needs_a_schema() -> None:
    with pytest.raises(SinkDataError, match=r"'a': .*only None.*give the sink a schema"):
        parquet(Rows([{"a": None}]))


def test_timestamps_come_out_as_they_went_in() -> None:
    time = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)
    aware = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    table = parquet(Rows([{"t": time, "z": aware, "d": dt.date(2024, 5, 6)}]))
    assert table.to_pylist() == [{"t": time, "z": aware, "d": dt.date(2024, 5, 6)}]
    for unit in ("ms", "us", "ns"):
        stamps = pa.array([1_700_000_000_000], pa.timestamp("ms")).cast(pa.timestamp(unit))
        table = parquet(Columns(pa.RecordBatch.from_pydict({"t": stamps})))
        assert str(table.schema.field("t").type) == f"timestamp[{'us' if unit == 'ns' else unit}]"
        assert table["t"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist() == [
            1_700_000_000_000
        ]


def test_json_lines_hold_what_python_values_mean() -> None:
    record = {
        "text": "é",
        "time": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "day": dt.date(2024, 1, 2),
        "price": Decimal("1.10"),
        "raw": b"\x00\x01",
        "pair": (1, 2),
        "set": {3},
        "count": np.int64(4),
        "none": None,
    }
    (line,) = jsonl(record)
    assert json.loads(line) == {
        "text": "é",
        "time": "2024-01-02T03:04:05+00:00",
        "day": "2024-01-02",
        "price": "1.10",
        "raw": "AAE=",
        "pair": [1, 2],
        "set": [3],
        "count": 4,
        "none": None,
    }


def test_json_lines_are_what_the_json_module_writes() -> None:
    records = [1, 'a"b\n', [1.5, True, None, {"é": []}], {}, -0.0, 10**30]
    assert jsonl(*records) == [
        json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records
    ]


@pytest.mark.parametrize("value", [object(), 1j, {(1, 2): 3}, "\ud800"])
def test_a_value_without_form_in_json_is_named(value: Any) -> None:
    with pytest.raises(SinkDataError, match="out: a record cannot be written as JSON"):
        jsonl({"ok": 1}, {"bad": value})


def test_a_record_that_contains_itself_is_named() -> None:
    record: dict[str, Any] = {}
    record["self"] = record
    with pytest.raises(SinkDataError, match="cannot be written as JSON"):
        jsonl(record)
