"""Times of nanoseconds inside of structs, lists and maps become rows as those of whole columns do."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from minirt.data.batch import Columns
from minirt.data.codec import RowCodec

NS, SPAN = pa.timestamp("ns", "UTC"), pa.duration("ns")
MICROSECOND = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TIMES = [1_999, None, -1, 0]
ROUNDED = [EPOCH + MICROSECOND, None, EPOCH - MICROSECOND, EPOCH]

times = pa.array(TIMES, NS)
nested = pa.StructArray.from_arrays([times, pa.array([1, 2, 3, 4])], ["t", "n"])

CASES: dict[str, tuple[pa.Array, list[Any]]] = {
    "column": (times, ROUNDED),
    "struct": (nested, [{"t": time, "n": n} for n, time in enumerate(ROUNDED, 1)]),
    "struct in a struct": (
        pa.StructArray.from_arrays([nested], ["s"]),
        [{"s": {"t": time, "n": n}} for n, time in enumerate(ROUNDED, 1)],
    ),
    "missing struct": (
        pa.StructArray.from_arrays([times], ["t"], mask=pa.array([False, False, True, False])),
        [{"t": ROUNDED[0]}, {"t": None}, None, {"t": EPOCH}],
    ),
    "dictionary": (times.dictionary_encode(), ROUNDED),
    "dictionary in a struct": (
        pa.StructArray.from_arrays([times.dictionary_encode()], ["t"]),
        [{"t": time} for time in ROUNDED],
    ),
    "map": (
        pa.array([[("a", 1_999)], None, [], [("b", -1), ("c", None)]], pa.map_(pa.string(), NS)),
        [[("a", ROUNDED[0])], None, [], [("b", ROUNDED[2]), ("c", None)]],
    ),
    "durations": (
        pa.array([[1_999], None, [-1, None], []], pa.list_(SPAN)),
        [[MICROSECOND], None, [-MICROSECOND, None], []],
    ),
    "structs in a list": (
        pa.array([[{"t": 1_999}], None, [None, {"t": -1}], []], pa.list_(pa.struct([("t", NS)]))),
        [[{"t": ROUNDED[0]}], None, [None, {"t": ROUNDED[2]}], []],
    ),
} | {
    str(type): (
        pa.array([[1_999, None], None, [-1, 0], [0, 0]], type),
        [[ROUNDED[0], None], None, [ROUNDED[2], EPOCH], [EPOCH, EPOCH]],
    )
    for type in (
        pa.list_(NS),
        pa.large_list(NS),
        pa.list_(NS, 2),
        pa.list_view(NS),
        pa.large_list_view(NS),
    )
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (2, 3), (0, 0)])
def test_they_are_rounded_down_to_microseconds(name: str, start: int, stop: int) -> None:
    array, expected = CASES[name]
    batch = pa.RecordBatch.from_arrays([array], ["c"]).slice(start, stop - start)
    rows = Columns(batch).rows()
    assert rows.records == [{"c": value} for value in expected[start:stop]]
    codec = RowCodec(allow_pickle=False)
    assert codec.decode(codec.encode(rows)).rows().records == rows.records


def test_runs_are_rounded_as_well() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1_999, None], NS))
    batch = pa.RecordBatch.from_arrays([runs], ["c"])
    assert Columns(batch).rows().records == [{"c": time} for time in (*ROUNDED[:1] * 2, None)]
