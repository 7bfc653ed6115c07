"""Columns as lines of JSON: byte for byte what their rows are."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.batch import Batch, Columns
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import SinkDataError
from minirt.io import json_text
from minirt.io.json_columns import read_lines
from minirt.io.json_of_columns import lines_of
from minirt.io.json_text import JsonlEncoder, OnNan


def written(batch: Batch, nan: OnNan = "null") -> bytes:
    stream = io.BytesIO()
    JsonlEncoder(stream, "out", nan).write(batch)
    return stream.getvalue()


def column(*values: Any, type: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, type)], names=["v"])


def check(table: pa.RecordBatch, nan: OnNan = "null") -> None:
    """The form of columns is that of rows, also of a part of them."""
    for part in (table, table.slice(1), table.slice(1, 1)):
        assert written(Columns(part), nan) == written(Columns(part).rows(), nan)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=4) | st.text('ab"\\\n\t\x00\x1f\x7f')
FLOATS = st.floats() | st.integers(-(2**53), 2**53).map(float) | st.floats(-1e5, 1e5)
TIMES = st.datetimes()
TIMES_OF_S = TIMES.map(lambda time: time.replace(microsecond=0))
NANOSECONDS = st.integers(-(2**62), 2**62)
INTS = st.integers(-(2**7), 2**7 - 1)
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), INTS),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float16(), st.floats(width=16).map(np.float16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), FLOATS),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.string_view(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.dictionary(pa.int32(), pa.float64()), st.sampled_from([0.1, 1.0])),
    (pa.binary(), st.binary(max_size=4)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    (pa.time32("s"), st.times().map(lambda time: time.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("s"), TIMES_OF_S),
    (pa.timestamp("us"), TIMES | TIMES_OF_S),
    (pa.timestamp("ns"), NANOSECONDS),
    (pa.timestamp("us", "UTC"), TIMES),
    (pa.timestamp("ms", "UTC"), TIMES_OF_S),
    (pa.timestamp("us", "+02:00"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    (pa.timestamp("ns", "Europe/Berlin"), NANOSECONDS),
    (pa.duration("us"), st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))),
    (pa.decimal128(12, 0), st.integers(-(10**12) + 1, 10**12 - 1)),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    (pa.decimal128(12, 9), st.decimals(-100, 100, places=9)),
    (pa.decimal256(50, 6), st.decimals(-(10**40), 10**40, places=6)),
    (pa.list_(pa.float64()), st.lists(FLOATS, max_size=2)),
    (pa.struct([("a", pa.string()), ("b", pa.int64())]), st.fixed_dictionaries({"a": TEXTS})),
    (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXTS, INTS, max_size=2)),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 6))
    chosen = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    nulls = draw(st.booleans())
    columns = []
    for type, values in chosen:
        values = st.none() | values if nulls else values
        columns.append(pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), type))
    names = draw(st.lists(TEXTS, min_size=len(chosen), max_size=len(chosen)))
    return pa.RecordBatch.from_arrays(columns, names=names)


def outcome(batch: Batch, nan: OnNan) -> tuple[bytes, str]:
    """What is written, or what is said instead."""
    try:
        return written(batch, nan), ""
    except SinkDataError as error:
        return b"", str(error)


@given(tables(), st.sampled_from(["error", "null"]))
def test_columns_are_written_as_their_rows_are(table: pa.RecordBatch, nan: OnNan) -> None:
    assert outcome(Columns(table), nan) == outcome(Columns(table).rows(), nan)


@pytest.mark.parametrize(("type", "values"), VALUES, ids=lambda value: str(value)[:24])
def test_columns_of_each_type_are_written_as_their_rows_are(type: pa.DataType, values: Any) -> None:
    @given(st.lists(st.none() | values, min_size=3), st.lists(values, min_size=3))
    def compare(some: list[Any], all: list[Any]) -> None:
        check(column(*some, type=type))
        check(column(*all, type=type))

    compare()


def test_each_float_has_the_digits_that_python_gives_it() -> None:
    random = np.random.default_rng(1)
    sizes = 10.0 ** random.uniform(-8, 18, 20_000)
    rounded = [
        round(size, digits)
        for size, digits in zip(sizes, random.integers(0, 9, 20_000), strict=True)
    ]
    ends = [0.0, -0.0, 1e-4, np.nextafter(1e-4, 0), 1e10, np.nextafter(1e10, 0), 1e16, 5e-324]
    numbers = [float(number) for number in (*sizes, *-sizes, *rounded, *ends)]
    lines = written(Columns(column(*numbers))).splitlines()
    assert lines == [f'{{"v":{number!r}}}'.encode() for number in numbers]


@pytest.mark.parametrize("scale", [-2, 0, 6, 7, 20])
def test_each_decimal_has_the_digits_that_python_gives_it(scale: int) -> None:
    digits = [0, 1, -10, *(int("1234567890123456789"[:count]) for count in range(2, 20))]
    numbers = [Decimal(digit).scaleb(-scale) for digit in digits]
    check(column(*numbers, type=pa.decimal128(38, scale)))


def test_each_character_that_json_does_not_have_is_written_another_way() -> None:
    texts = [f"{chr(code)}a{chr(code)}" for code in range(300)]
    lines = written(Columns(column(*texts, "".join(texts)))).splitlines()
    assert [json.loads(line)["v"] for line in lines] == [*texts, "".join(texts)]
    check(column(*texts))


def test_values_of_most_types_never_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000)
    table = pa.RecordBatch.from_pylist(
        [
            {
                "n": 1,
                "x": 0.5,
                "ok": True,
                "text": 'a"b',
                "at": at,
                "day": at.date(),
                "d": Decimal("1.10"),
            }
        ]
    )
    expected = written(Columns(table).rows())
    monkeypatch.setattr(
        json_text, "_encode", lambda value: json.dumps(value) if value in known else fail()
    )
    known = {*table.schema.names, '"'}
    assert written(Columns(table)) == expected


def fail() -> str:
    raise AssertionError("a value became an object")


@pytest.mark.parametrize(
    "array",
    [
        pa.array([dt.date(2024, 1, 1).toordinal() * 100], pa.int32()).view(pa.date32()),
        pa.array([2**62]).view(pa.timestamp("us")),
        pa.array([2**62]).view(pa.timestamp("s", "UTC")),
        pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
        ),
    ],
    ids=["date", "time", "aware time", "text"],
)
def test_a_value_that_python_does_not_have_is_refused(array: pa.Array) -> None:
    table = pa.RecordBatch.from_arrays([pa.array([1]), array], names=["n", "v"])
    with pytest.raises(UnsupportedRecordError, match="column 'v'"):
        written(Columns(table))


def test_the_record_with_a_value_that_json_does_not_have_is_named() -> None:
    table = pa.RecordBatch.from_pydict({"n": [1, 2], "x": [0.5, float("nan")]})
    with pytest.raises(SinkDataError, match=r"out: .*nan has no form .*: \{'n': 2, 'x': nan\}"):
        written(Columns(table), "error")
    assert written(Columns(table), "null") == b'{"n":1,"x":0.5}\n{"n":2,"x":null}\n'


def test_records_without_fields_and_names_that_are_there_twice_are_as_in_rows() -> None:
    check(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([]))))
    twice = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    assert lines_of(twice, json.dumps) is None
    check(twice)


def test_a_dictionary_that_is_longer_than_the_column_is_not_written_whole() -> None:
    codes = pa.array([0, None, 1], pa.int8())
    long = pa.DictionaryArray.from_arrays(codes, ["a", None, "b", "c"])
    check(pa.RecordBatch.from_arrays([long], names=["v"]))
    check(
        pa.RecordBatch.from_arrays(
            [pa.DictionaryArray.from_arrays(codes, ["a", None])], names=["v"]
        )
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_are_read_as_they_were_written(unit: str, zone: str | None) -> None:
    type = pa.timestamp(unit, zone)
    steps = pa.array([0, 1, 1000, None, -1, 1_700_000_123], type)
    table = pa.record_batch({"at": steps, "all": [[step] for step in steps.to_pylist()]})
    schema = pa.schema([("at", type), ("all", pa.list_(type))])
    table = table.cast(schema)
    assert read_lines(written(Columns(table)), schema).equals(table)


def test_digits_that_a_timestamp_does_not_have_are_refused() -> None:
    schema = pa.schema([("at", pa.timestamp("ms"))])
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        read_lines(b'{"at": "2026-01-02 03:04:05.000600"}', schema)
