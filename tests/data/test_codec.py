"""Rows and columns as bytes: what goes in comes out, and what cannot go in is refused."""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import pickle
import struct
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minirt.data.batch import Columns, Rows
from minirt.data.codec import (
    RowCodec,
    decode_columns,
    encode_columns,
    pack_value,
    pack_values,
    unpack_value,
    unpack_values,
)
from minirt.data.errors import MalformedDataError, UnsupportedRecordError
from minirt.errors import MinirtError, ProtocolError
from tests.data.exact import assert_exact
from tests.data.strategies import ANY_TEXT, ATOMS, VALUES

Point = namedtuple("Point", "x y")


@dataclass
class Flight:
    origin: str
    delay: int


class Color(enum.IntEnum):
    RED = 1


class MyStr(str):
    pass


def round_trip(records: list[Any], timestamps: list[int] | None = None) -> Rows:
    codec = RowCodec()
    return codec.decode(memoryview(codec.encode(Rows(records, timestamps))))


FIELDS = st.sampled_from(["origin", "delay", "é", ""])
UNIFORM = st.one_of(
    st.lists(st.tuples(ANY_TEXT, st.just(1))),
    st.lists(st.tuples(st.integers(), st.floats(), st.none() | st.booleans())),
    st.lists(st.fixed_dictionaries({"b": VALUES, "a": st.floats(), "c": ATOMS})),
    st.lists(st.dictionaries(FIELDS, st.integers(), max_size=3)),
    st.lists(st.permutations(["a", "b", "c"]).map(dict.fromkeys)),
    st.lists(st.lists(st.integers(), max_size=3)),
    st.lists(st.tuples(ANY_TEXT, st.lists(st.dictionaries(ATOMS, VALUES, max_size=2)))),
    st.lists(st.floats()),
    st.lists(st.booleans()),
)


@given(UNIFORM)
def test_records_of_one_shape_come_back_equal_and_of_the_same_types(records: list[Any]) -> None:
    assert_exact(round_trip(records).records, records)


@given(st.lists(VALUES, max_size=5))
@example([1, True, 1.0])
@example([{1: "a"}, {True: "a"}])
@example([(1,), [1]])
@example([{"a": 1, "b": 2}, {"b": 2, "a": 1}])
@example([0.0, -0.0])
@example([()] * 3)
@example([{}] * 3)
@example([[]] * 3)
@example([[[]], [[], []]])
@example([2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
@example([{"a": "\udcff"}, {"a": b"\xff"}])
@example([bytearray(b"x"), [bytearray(b"y"), {"k": (bytearray(b"z"), b"z")}]])
@example([{1, "a", (1, frozenset({2}))}])
@example([tuple(range(65))] * 2)
def test_mixed_records_come_back_equal_and_of_the_same_types(records: list[Any]) -> None:
    assert_exact(round_trip(records).records, records)


@given(VALUES)
def test_single_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    assert_exact(unpack_value(pack_value(value)), value)


def test_deeply_nested_values_come_back() -> None:
    value: Any = 1
    for _ in range(100):
        value = [(value,)]
    assert_exact(round_trip([value, value]).records, [value, value])


def test_large_batch_with_large_values_comes_back() -> None:
    records: list[Any] = [("x" * 5_000_000, i, b"y" * 2_000_000) for i in range(5)]
    assert_exact(round_trip(records).records, records)
    records = [{"n": i, "f": i / 7} for i in range(100_000)]
    assert_exact(round_trip(records).records, records)


def test_equal_records_are_not_the_same_object_afterwards() -> None:
    first, second = round_trip([[1], [1]]).records
    first.append(2)
    assert second == [1]


@given(st.lists(st.integers(min_value=-(2**63), max_value=2**63 - 1)))
def test_timestamps_come_along(timestamps: list[int]) -> None:
    result = round_trip([None] * len(timestamps), timestamps)
    assert_exact(result.timestamps, timestamps)
    assert len(result) == len(timestamps)


def test_absent_timestamps_stay_absent() -> None:
    assert round_trip([1, 2]).timestamps is None
    assert round_trip([]).timestamps is None
    assert round_trip([], []).timestamps == []


def test_timestamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(UnsupportedRecordError, match=str(2**63)):
        round_trip([1, 2], [1, 2**63])


def test_batch_with_a_wrong_number_of_timestamps_is_refused() -> None:
    with pytest.raises(ProtocolError, match="2 records but 1 timestamps"):
        round_trip([1, 2], [1])


@pytest.mark.parametrize(
    "value",
    [
        Point(1, 2),
        Flight("JFK", 3),
        Color.RED,
        MyStr("a"),
        OrderedDict(a=1),
        memoryview(b"ab"),
        msgpack.ExtType(1, b"t"),
        msgpack.Timestamp(1, 2),
        np.array([object()]),
        np.zeros(2, dtype="i4,f4"),
        np.zeros(2, dtype="i4,f4")[0],
        object(),
        1j,
        len,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda value: value,
        lambda value: ("k", value),
        lambda value: {"k": 1, "v": value},
        lambda value: [1, {"a": (None, value)}],
    ],
    ids=["alone", "in tuple", "in dict", "nested"],
)
def test_unsupported_type_is_refused_with_type_record_and_remedy(value: Any, wrap: Any) -> None:
    records = [wrap(0), wrap(value), wrap(0)]
    with pytest.raises(UnsupportedRecordError) as caught:
        RowCodec().encode(Rows(records))
    message = str(caught.value)
    assert type(value).__qualname__ in message
    assert repr(records[1])[:60] in message
    assert "allow_pickle=True" in message


def test_long_record_is_cut_in_the_message() -> None:
    with pytest.raises(UnsupportedRecordError) as caught:
        RowCodec().encode(Rows([["x" * 10_000, object()]]))
    assert len(str(caught.value)) < 700


def test_subclass_of_str_as_key_of_uniform_dicts_is_refused() -> None:
    with pytest.raises(UnsupportedRecordError, match="MyStr"):
        RowCodec().encode(Rows([{"a": 1}, {MyStr("a"): 2}]))


def test_record_that_contains_itself_is_refused() -> None:
    record: list[Any] = []
    record += [record, record]
    with pytest.raises(UnsupportedRecordError, match="contains itself"):
        RowCodec().encode(Rows([record, record]))
    with pytest.raises(UnsupportedRecordError, match="contains itself"):
        RowCodec().encode(Rows([record, 1]))


def test_codec_works_after_a_refusal() -> None:
    codec = RowCodec()
    with pytest.raises(UnsupportedRecordError):
        codec.encode(Rows(["x", object()]))
    assert codec.decode(codec.encode(Rows(["x"]))).records == ["x"]


def test_any_type_travels_as_pickle_if_allowed() -> None:
    codec = RowCodec(allow_pickle=True)
    records = [Flight("JFK", 1), (Point(1, 2), [Color.RED]), {"a": Decimal(1)}]
    assert_exact(codec.decode(codec.encode(Rows(records))).records[1], records[1])
    assert codec.decode(codec.encode(Rows(records))).records == records


def test_class_that_no_other_process_can_import_travels_as_pickle() -> None:
    class Local:
        pass

    codec = RowCodec(allow_pickle=True)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(Local())
    assert type(codec.decode(codec.encode(Rows([Local()]))).records[0]).__name__ == "Local"


def test_value_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(UnsupportedRecordError, match="cannot be pickled"):
        RowCodec(allow_pickle=True).encode(Rows([1, iter_nothing()]))


def iter_nothing() -> Iterator[int]:
    yield from ()


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of the data was run",))


def test_pickle_is_not_run_unless_allowed() -> None:
    payload = RowCodec(allow_pickle=True).encode(Rows([Bomb()]))
    with pytest.raises(MalformedDataError, match="allow_pickle"):
        RowCodec().decode(payload)
    with pytest.raises(MalformedDataError, match="allow_pickle"):
        unpack_value(pack_value(Bomb(), allow_pickle=True))


SAMPLE = RowCodec().encode(
    Rows(
        [
            ("k", 1.5, dt.datetime(2024, 1, 2, tzinfo=dt.UTC), {"a": [1, 2], 3: {4}}),
            ("l", 2.5, dt.datetime(2024, 1, 3), {"b": np.arange(3), "c": np.int8(1)}),
        ],
        [1, 2],
    )
)


@given(st.data())
def test_damaged_payload_gives_a_clean_error_or_some_rows(data: st.DataObject) -> None:
    payload = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(payload) - 1))
        payload[position] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(RowCodec().decode(bytes(payload)), Rows)
    except MinirtError:
        pass


def test_cut_off_payload_gives_a_clean_error() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(MalformedDataError):
            RowCodec().decode(SAMPLE[:length])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_a_clean_error(payload: bytes) -> None:
    head = RowCodec().encode(Rows([]))[:8]
    for data in (payload, head + payload, head + b"\x10" + payload, head + b"\x11" + payload):
        try:
            RowCodec().decode(data)
        except MinirtError:
            pass
    try:
        unpack_value(b"\x11" + payload)
    except MinirtError:
        pass


NODES = st.recursive(
    st.integers(-2, 9) | st.binary(max_size=8) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(NODES, st.integers(-1, 4) | st.just(2**40))
def test_trees_that_make_no_sense_give_a_clean_error(node: Any, count: int) -> None:
    try:
        values = unpack_values(b"\x10" + msgpack.packb([count, node]))
    except MinirtError:
        return
    assert len(values) == count


def test_values_nested_without_end_give_a_clean_error() -> None:
    node: Any = [0, [1]]
    for _ in range(300):
        node = [5, [1], node]
    assert unpack_values(b"\x10" + msgpack.packb([1, node]))
    with pytest.raises(MalformedDataError):
        unpack_values(b"\x10" + b"\x91" * 100_000)


def test_payload_of_another_version_is_refused() -> None:
    payload = bytearray(SAMPLE)
    payload[1] = 2
    with pytest.raises(MalformedDataError, match="version 2"):
        RowCodec().decode(bytes(payload))


def test_rows_cannot_be_decoded_as_columns_nor_columns_as_rows() -> None:
    columns = encode_columns(Columns(pa.record_batch({"a": [1]})))
    with pytest.raises(MalformedDataError):
        decode_columns(SAMPLE)
    with pytest.raises(MalformedDataError):
        RowCodec().decode(columns)


def test_packed_values_are_compact() -> None:
    records = [{"origin": "JFK", "delay": float(i)} for i in range(1000)]
    assert len(pack_values(records)) < 9 * 1000


# Columns


def table() -> pa.RecordBatch:
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False, metadata={"unit": "none"}),
            pa.field("name", pa.dictionary(pa.int8(), pa.string())),
            pa.field("at", pa.timestamp("ms", "Europe/Berlin")),
            pa.field("tags", pa.list_(pa.string())),
        ],
        metadata={"origin": "test"},
    )
    rows = [
        {"id": 1, "name": "a", "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "tags": ["x"]},
        {"id": 2, "name": None, "at": None, "tags": None},
        {"id": 3, "name": "b", "at": dt.datetime(2024, 6, 1, tzinfo=dt.UTC), "tags": []},
    ]
    return pa.RecordBatch.from_pylist(rows, schema)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("bounds", [(0, 3), (1, 3), (1, 1)])
def test_columns_come_back_with_schema_and_timestamps(timed: bool, bounds: tuple[int, int]) -> None:
    batch = Columns(table(), np.array([5, -6, 7]) if timed else None).slice(*bounds)
    result = decode_columns(encode_columns(batch))
    assert result.table.equals(batch.table, check_metadata=True)
    if batch.timestamps is None:
        assert result.timestamps is None
    else:
        assert result.timestamps is not None
        assert result.timestamps.dtype == np.int64
        assert result.timestamps.tolist() == batch.timestamps.tolist()


def test_timestamps_that_are_a_strided_view_come_back() -> None:
    batch = Columns(table(), np.arange(6)[::2])
    result = decode_columns(encode_columns(batch))
    assert result.timestamps is not None
    assert result.timestamps.tolist() == [0, 2, 4]


def test_decoded_columns_are_views_of_the_payload() -> None:
    payload = encode_columns(Columns(pa.record_batch({"n": np.arange(10_000)}), np.arange(10_000)))
    start = np.frombuffer(payload, np.uint8).ctypes.data
    result = decode_columns(memoryview(payload))
    assert result.timestamps is not None
    for address in (result.table.column(0).buffers()[1].address, result.timestamps.ctypes.data):
        assert start <= address < start + len(payload)
        assert address % 8 == start % 8


def test_cut_off_columns_give_a_clean_error() -> None:
    payload = encode_columns(Columns(table(), np.arange(3)))
    end_of_stream = 8
    for length in range(len(payload) - end_of_stream):
        with pytest.raises(MalformedDataError):
            decode_columns(payload[:length])


def test_columns_with_a_wrong_number_of_timestamps_are_refused() -> None:
    with pytest.raises(ProtocolError):
        encode_columns(Columns(table(), np.arange(2)))
    payload = bytes(encode_columns(Columns(table(), np.arange(3))))
    less = payload[:4] + struct.pack("<I", 2) + payload[8:24] + payload[32:]
    with pytest.raises(MalformedDataError, match="2 timestamps for 3 records"):
        decode_columns(less)


def test_every_pair_of_types_in_one_column_keeps_both() -> None:
    samples = [None, True, 1, 2**65, 1.0, "1", b"1", (1,), [1], {1: 1}, {1}, dt.date(2024, 1, 1)]
    for pair in itertools.product(samples, repeat=2):
        assert_exact(round_trip(list(pair)).records, list(pair))
        assert_exact(round_trip([(pair[0], 0), (pair[1], 0)]).records, [(pair[0], 0), (pair[1], 0)])
