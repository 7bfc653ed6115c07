"""Which records the file formats hold, and what is said about the others."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import ConfigurationError, SinkDataError
from minirt.io import JsonlSink, ParquetSink
from minirt.io.json_text import OnNan
from tests.data.strategies import VALUES

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])


def parquet(*batches: Batch, schema: pa.Schema | None = None) -> pa.Table:
    stream = io.BytesIO()
    encoder = ParquetSink("/tmp/unused", schema=schema).encoding("out")(stream)
    for batch in batches:
        encoder.write(batch)
    encoder.finish()
    return pq.read_table(pa.BufferReader(stream.getvalue()))


def jsonl(*records: Any, nan: OnNan = "error") -> list[str]:
    stream = io.BytesIO()
    JsonlSink("/tmp/unused", nan=nan).encoding("out")(stream).write(Rows(list(records)))
    return stream.getvalue().decode().split("\n")[:-1]


def test_a_uuid_inside_of_other_values_is_named() -> None:
    with pytest.raises(SinkDataError, match="column 'of': UUIDs inside of lists and dicts"):
        parquet(Rows([{"of": [UUID(int=1)]}]))


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
    with pytest.raises(SinkDataError, match=r"'id': 1.5 of type double cannot become int64"):
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


def test_a_given_schema_does_not_grow() -> None:
    encoding = ParquetSink("/tmp/unused", schema=pa.schema([("a", pa.int64())])).encoding("out")
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
        assert str(table.schema.field("t").type) == f"timestamp[{unit}]"
        assert table["t"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist() == [
            1_700_000_000_000
        ]


def test_no_digit_of_a_time_is_lost_without_a_schema() -> None:
    stamps = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))
    nested = pa.StructArray.from_arrays([stamps], ["at"])
    table = parquet(Columns(pa.RecordBatch.from_pydict({"t": stamps, "in": nested})))
    assert table["t"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789]
    assert table["in"].combine_chunks().field("at").equals(stamps)
    table = parquet(Rows([{"t": np.datetime64(1_700_000_000_123_456_789, "ns")}]))
    assert table["t"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789]
    schema = pa.schema([("t", pa.timestamp("us"))])
    with pytest.raises(
        SinkDataError, match=r"of type timestamp\[ns\] cannot become timestamp\[us\]"
    ):
        parquet(Columns(pa.RecordBatch.from_pydict({"t": stamps})), schema=schema)


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


@pytest.mark.parametrize("value", [object(), {object(): 3}, {1: object()}, pa.scalar(1)])
def test_a_value_without_form_in_json_is_named(value: Any) -> None:
    with pytest.raises(SinkDataError, match="out: a record cannot be written as JSON"):
        jsonl({"ok": 1}, {"bad": value})


def test_a_record_that_contains_itself_is_named() -> None:
    record: dict[str, Any] = {}
    record["self"] = record
    with pytest.raises(SinkDataError, match="cannot be written as JSON"):
        jsonl(record)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (dt.time(1, 2, 3), "01:02:03"),
        (dt.timedelta(days=1, seconds=2, microseconds=500_000), "P1DT2.5S"),
        (dt.timedelta(microseconds=-1), "-P0DT0.000001S"),
        (bytearray(b"\0"), "AA=="),
        (frozenset([1]), [1]),
        (1j, [0.0, 1.0]),
        (Decimal("NaN"), "NaN"),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.bool_(True), True),
        (np.complex64(1 + 2j), [1.0, 2.0]),
        (np.str_("a"), "a"),
        (np.bytes_(b"\0\1"), "AAE="),
        (np.datetime64(1_700_000_000_123_456_789, "ns"), "2023-11-14T22:13:20.123456789"),
        (np.datetime64("2024-05-06"), "2024-05-06"),
        (np.datetime64("NaT", "ns"), None),
        (np.timedelta64(1, "ns"), "P0DT0.000000001S"),
        (np.timedelta64(1, "m"), "P0DT60S"),
        (np.timedelta64(1, "Y"), "1 years"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(["a"]), ["a"]),
        (np.array(3), 3),
        (np.array(["2024-05-06"], "M8[D]"), ["2024-05-06"]),
        ({dt.date(2024, 5, 6): UUID(int=0).bytes}, {"2024-05-06": "AAAAAAAAAAAAAAAAAAAAAA=="}),
        ({UUID(int=0): 1}, {"00000000-0000-0000-0000-000000000000": 1}),
        ({None: 1, True: 2, 1.5: 3, 7: 4}, {"null": 1, "true": 2, "1.5": 3, "7": 4}),
        ({(1, "a"): 1, frozenset([UUID(int=0)]): 2}, {'[1,"a"]': 1, f'["{UUID(int=0)}"]': 2}),
        ({np.int64(1): 1, b"\0": 2}, {"1": 1, "AA==": 2}),
    ],
)
def test_every_type_that_records_may_have_has_a_form_in_json(value: Any, expected: Any) -> None:
    assert json.loads(*jsonl({"v": value})) == {"v": expected}
    (line,) = jsonl((0, [value, {"in": value}]))
    assert json.loads(line) == [0, [expected, {"in": expected}]]


@given(VALUES)
def test_whatever_can_travel_between_subtasks_can_be_written_as_json(record: Any) -> None:
    (line,) = jsonl([record], nan="null")
    json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("make", [float, np.float64, np.float32, lambda v: np.array([v])])
def test_what_is_no_number_of_json_is_refused_or_null(value: float, make: Any) -> None:
    with pytest.raises(SinkDataError, match=r'give the sink nan="null"'):
        jsonl({"ok": 1.5}, {"bad": make(value)})
    good, bad = jsonl({"ok": 1.5}, {"bad": [make(value), {"x": value}], "ok": 2}, nan="null")
    assert good == '{"ok":1.5}'
    assert bad in ('{"bad":[null,{"x":null}],"ok":2}', '{"bad":[[null],{"x":null}],"ok":2}')
    with pytest.raises(ConfigurationError, match="nan must be one of error, null"):
        JsonlSink("/tmp/x", nan="text")  # type: ignore[arg-type]


def test_lone_surrogates_come_back_from_json_lines() -> None:
    record = {"\udcff": ['a\ud800"b', "é", "😀"]}
    lines = jsonl(record, {"plain": 1})
    assert [json.loads(line) for line in lines] == [record, {"plain": 1}]
