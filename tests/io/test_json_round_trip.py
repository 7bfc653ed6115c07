"""What `JsonlSink` writes of columns, a source with their schema reads as it was."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.batch import Columns
from minirt.errors import BadRecordError, ConfigurationError
from minirt.io import JsonlSource
from minirt.io.json_columns import checked_schema, read_lines
from minirt.testing.contracts import read_all
from tests.io.test_json_of_columns import NANOSECONDS, VALUES, column, written

MORE: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((pa.float16(), st.floats(width=16)), (pa.large_binary(), st.binary(max_size=4))),
    *(
        (pa.time32("ms"), st.integers(0, 86_399_999)),
        (pa.time64("ns"), st.integers(0, 86_399_999_999)),
    ),
    *((pa.duration(unit), st.integers(-(10**9), 10**9)) for unit in ("s", "ms", "ns")),
    (pa.large_list(pa.int64()), st.lists(st.integers(-9, 9), max_size=2)),
    (pa.list_(pa.int64(), 2), st.lists(st.integers(-9, 9), min_size=2, max_size=2)),
]


def exact(type: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Without what the sink does not write as it is: NaN and infinity, and parts of a microsecond.

    Neither with times of zones that had offsets of some seconds: Arrow reads none of these.
    """
    if pa.types.is_floating(type):
        return values.filter(math.isfinite)
    if type == pa.timestamp("ns", "Europe/Berlin"):
        return st.integers(-(2**60) // 1000, 2**62 // 1000).map(lambda count: count * 1000)
    if type == pa.timestamp("ns"):
        return NANOSECONDS.map(lambda count: count // 1000 * 1000)
    if type in (pa.time64("ns"), pa.duration("ns")):
        return values.map(lambda count: count * 1000)
    if (
        pa.types.is_nested(type)
        and type.num_fields == 1
        and pa.types.is_floating(type.field(0).type)
    ):
        return values.filter(
            lambda all: all is None or all == [each for each in all if math.isfinite(each)]
        )
    return values


READ = [
    (type, exact(type, values)) for type, values in [*VALUES, *MORE] if not pa.types.is_map(type)
]


@pytest.mark.parametrize(("type", "values"), READ, ids=lambda value: str(value)[:24])
def test_columns_of_each_type_are_read_as_they_were(type: pa.DataType, values: Any) -> None:
    """Also inside of structs and lists; the parts of a table that was cut are read alike."""
    nested = pa.struct([("x", type), ("all", pa.list_(type))])
    schema = pa.schema([("v", type), ("n", nested)])
    checked_schema(schema)

    @given(st.lists(st.none() | values, min_size=3))
    def compare(some: list[Any]) -> None:
        whole = column(*some, type=type).column(0)
        lists = pa.ListArray.from_arrays(pa.array(range(len(whole) + 1), pa.int32()), whole)
        inside = pa.StructArray.from_arrays(
            [whole, lists.cast(pa.list_(type))], fields=list(nested)
        )
        table = pa.RecordBatch.from_arrays([whole, inside], schema=schema)
        for part in (table, table.slice(1, 1)):
            found = read_lines(written(Columns(part)), schema)
            found.validate(full=True)
            assert found.schema == part.schema
            assert found.to_pylist() == part.to_pylist()  # Dictionaries may have other entries.

    compare()


CLOCK_TYPES = [
    (pa.date32(), 18_263),
    (pa.time32("s"), 3723),
    (pa.time32("ms"), 3_723_004),
    (pa.time64("us"), 3_723_000_004),
    (pa.duration("s"), 90_061),
    (pa.duration("ns"), -5),
    *((pa.timestamp(unit), 1500) for unit in ("s", "ms", "us", "ns")),
    (pa.timestamp("ms", "UTC"), -1500),
    (pa.timestamp("us", "Europe/Berlin"), 1_700_000_000_000_000),
]


@pytest.mark.parametrize(("type", "number"), CLOCK_TYPES, ids=lambda value: str(value))
def test_times_of_all_kinds_may_be_numbers(type: pa.DataType, number: int) -> None:
    schema = pa.schema([("v", type), ("all", pa.list_(type))])
    lines = b"\n".join(json.dumps({"v": v, "all": [v]}).encode() for v in (None, number))
    counts = pa.array([None, number], pa.int32() if type.bit_width == 32 else pa.int64())
    assert read_lines(lines, schema).column("v").equals(counts.view(type))


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (pa.time32("s"), "01:02:03.5"),
        (pa.time64("us"), "24:00:00"),
        (pa.time64("us"), "noon"),
        (pa.date32(), "2020-02-30"),
        (pa.duration("s"), "P1DT2.5S"),
        (pa.duration("us"), "PT2.5S"),
        (pa.duration("ns"), "P999999DT0S"),
        (pa.binary(), "a"),
        (pa.binary(), "Ω"),
        (pa.binary(3), "YWI="),
        (pa.dictionary(pa.int8(), pa.int64()), "x"),
        (pa.timestamp("us"), "2024-03-31T12:30:00+02:00"),
        (pa.timestamp("us"), "2024-03-31T12:30:00Z"),
        (pa.timestamp("us", "UTC"), "2024-03-31T12:30:00"),
        (pa.timestamp("us", "Europe/Berlin"), "2024-03-31"),
        (pa.timestamp("ms"), "2024-03-31T12:30:00.0005"),
        (pa.timestamp("ns"), "9999-12-31T00:00:00"),
        (pa.time64("us"), "12:30:00+02:00"),
    ],
    ids=str,
)
def test_a_text_that_does_not_fit_is_refused(type: pa.DataType, text: str) -> None:
    schema = pa.schema([("v", type)])
    with pytest.raises(pa.ArrowInvalid):
        read_lines(json.dumps({"v": text}).encode(), schema)


@pytest.mark.parametrize(
    "type", [pa.map_(pa.string(), pa.int64()), pa.list_view(pa.int64())], ids=str
)
def test_a_type_that_cannot_be_read_is_refused_before_anything_starts(type: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match="column 'v' cannot be read from JSON"):
        checked_schema(pa.schema([("v", type)]))


PARTS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "day": (pa.date32(), st.sampled_from(["1970-01-06", 5])),
    "at": (pa.timestamp("ms"), st.sampled_from(["1970-01-01T00:00:01.500", 1500])),
    "took": (pa.duration("s"), st.sampled_from(["P0DT90S", 90])),
    "id": (pa.int64(), st.integers(-9, 9)),
}


@given(st.lists(st.fixed_dictionaries({n: st.none() | v for n, (_, v) in PARTS.items()})))
def test_each_column_of_each_line_may_have_texts_or_numbers(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "times.jsonl"
    path.write_text("".join(json.dumps({**one, "in": one}) + "\n" for one in records))
    plain = [pa.field(name, type) for name, (type, _) in PARTS.items()]
    source = JsonlSource(path, schema=pa.schema([*plain, pa.field("in", pa.struct(plain))]))
    rows = [row for split in source.plan_splits(1) for row in read_all(source, split)]
    right = {
        "day": dt.date(1970, 1, 6),
        "at": dt.datetime(1970, 1, 1, 0, 0, 1, 500_000),
        "took": dt.timedelta(seconds=90),
    }
    expected = [
        {name: value if value is None else right.get(name, value) for name, value in one.items()}
        for one in records
    ]
    assert rows == [{**one, "in": one} for one in expected]


@pytest.mark.parametrize("type", [pa.float32(), pa.float16()], ids=str)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_the_nearest_or_refused(type: pa.DataType, number: float) -> None:
    with np.errstate(over="ignore"):
        nearest = float(np.float64(number).astype(type.to_pandas_dtype()))
    line = json.dumps({"v": number, "all": [number]}).encode()
    schema = pa.schema([("v", type), ("all", pa.list_(type))])
    if math.isinf(nearest) or (nearest == 0) != (number == 0):
        with pytest.raises(pa.ArrowInvalid, match=f"beyond the range of {type}"):
            read_lines(line, schema)
    else:
        assert read_lines(line, schema).to_pylist() == [{"v": nearest, "all": [nearest]}]


@pytest.mark.parametrize("text", ["José".encode("latin-1"), b"\xff\xfe", b"\xed\xa0\x80"])
def test_a_text_that_is_no_utf_8_is_refused(text: bytes) -> None:
    for type in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        with pytest.raises(pa.ArrowInvalid, match="no UTF-8"):
            read_lines(b'{"v": "' + text + b'"}', pa.schema([("v", type)]))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"at": True}, r"column 'at' of type timestamp\[ms\]: a JSON boolean, where a string"),
        ({"at": 1500.5}, r"column 'at' of type timestamp\[ms\]: .*1500\.5"),
        ({"at": "noon"}, r"column 'at' of type timestamp\[ms\]: .*noon"),
        ({"id": 2.5}, r"column 'id' of type int64: .*2\.5"),
        ({"in": {"id": "x"}}, r"column 'in' .*: a JSON string, .* number .*, inside in in\.id"),
    ],
    ids=str,
)
def test_of_a_bad_line_the_column_its_type_and_the_value_are_told(
    tmp_path: Path, line: dict[str, Any], told: str
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(line))
    plain = [("at", pa.timestamp("ms")), ("id", pa.int64())]
    source = JsonlSource(tmp_path, schema=pa.schema([*plain, ("in", pa.struct(plain))]))
    [split] = source.plan_splits(1)
    with pytest.raises(BadRecordError, match=rf"in\.jsonl, byte 0: .*{told}"):
        read_all(source, split)
