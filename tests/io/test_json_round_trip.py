"""What `JsonlSink` writes of columns, a source with their schema reads as it was."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.batch import Columns
from minirt.errors import ConfigurationError
from minirt.io.json_columns import checked_schema, read_lines
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
]


@pytest.mark.parametrize(("type", "number"), CLOCK_TYPES, ids=lambda value: str(value))
def test_dates_times_and_durations_may_be_numbers(type: pa.DataType, number: int) -> None:
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


def test_of_a_bad_line_both_forms_are_told() -> None:
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64())])
    for line in (b'{"day": 3, "id": "x"}', b'{"day": "2020-01-02", "id": "x"}'):
        with pytest.raises(pa.ArrowInvalid, match=r"(?s)/id.* changed from number to string"):
            read_lines(line, schema)
