"""Key hashing: stable, equal for equal keys, equal in rows and columns, and well spread."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minirt.data import hashing
from minirt.data.keys import (
    KeyRouter,
    UnstableKeyError,
    check_key_type,
    group_range,
    hash_column,
    hash_columns,
    hash_keys,
    key_group,
    key_groups,
    key_hash,
    subtask_of_group,
)
from tests.data.strategies import ANY_TEXT, KEYS

BERLIN = ZoneInfo("Europe/Berlin")
PINNED = {
    None: 0x33605FE82FA60161,
    0: 0xB800BD6C02472607,
    1: 0xCB30A855101ADE54,
    -1: 0xD92529B7DBA27AFA,
    2**64: 0x8516FB328E9896BF,
    "": 0x05F80708ADB6C5A9,
    "JFK": 0x3CAD560088599904,
    "Zürich": 0xB537406DF8C591D2,
    b"JFK": 0x2B287E99A381E439,
    "x" * 100: 0x2502FFE3384908E7,
    dt.date(2024, 2, 29): 0x9227F48078D1188B,
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC): 0xB775F47E95A7635B,
    UUID(int=1): 0xF2FCE476379D0806,
    (): 0x3B4F52B47B10D82F,
    ("JFK", 1): 0xB13B73406C684E02,
    (("a",), None): 0x34E41974D5E93A03,
}


@pytest.mark.parametrize(("key", "expected"), PINNED.items(), ids=repr)
def test_hashes_never_change(key: Any, expected: int) -> None:
    assert key_hash(key) == expected


def test_hash_does_not_depend_on_the_process() -> None:
    keys = ["JFK", ("a", 1), b"x"]
    program = f"from minirt.data.keys import key_hash; print([key_hash(k) for k in {keys!r}])"
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str([key_hash(key) for key in keys])


@pytest.mark.parametrize(
    "equal",
    [
        [1, True, np.int64(1), np.int8(1), np.uint64(1), np.bool_(True)],
        [0, False, np.bool_(False)],
        [2**64 - 1, np.uint64(2**64 - 1)],
        ["é", np.str_("é")],
        [(1, "a"), (True, np.str_("a"))],
        [
            dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2024, 7, 1, 14, tzinfo=BERLIN),
            dt.datetime(2024, 7, 1, 7, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
        ],
        [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, fold=1)],
    ],
    ids=repr,
)
def test_keys_that_are_equal_hash_equally(equal: Sequence[Any]) -> None:
    assert len(set(equal)) == 1
    assert len({key_hash(key) for key in equal}) == 1


@pytest.mark.parametrize(
    "different",
    [
        ["a", b"a"],
        ["", b"", (), None, 0],
        [dt.date(1970, 1, 2), 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1)],
        ["ab", "ba", "a\0b", "ab\0", "\0ab"],
        [(1, 2), (2, 1), ((1, 2),), (1, (2,)), (1, 2, None)],
        [("a", "b"), ("ab", ""), ("", "ab")],
        [UUID(int=1), UUID(int=1).bytes, 1],
        [2**64, -(2**63) - 1, 2**128, -(2**64)],
    ],
    ids=repr,
)
def test_keys_that_differ_hash_differently(different: Sequence[Any]) -> None:
    assert len({key_hash(key) for key in different}) == len(different)


class Color(enum.IntEnum):
    RED = 1


class Name(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (1.0, "floats"),
        (float("nan"), "floats"),
        (np.float64(1), "floats"),
        (np.float32(1), "floats"),
        ([1], "tuple"),
        ({"a": 1}, "tuple"),
        ({1}, "tuple"),
        (frozenset({1}), "tuple"),
        (bytearray(b"a"), "tuple"),
        (decimal.Decimal(1), "same on every machine"),
        (dt.time(1), "same on every machine"),
        (dt.timedelta(1), "same on every machine"),
        (object(), "same on every machine"),
        (Color.RED, "Enum"),
        (Name.RED, "Enum"),
        (np.datetime64("2024-01-01"), "same on every machine"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_unstable_key_is_refused_with_type_and_reason(key: Any, reason: str) -> None:
    for attempt in (
        lambda: key_hash(key),
        lambda: key_hash(("a", (key,))),
        lambda: hash_keys([key, key]),
        lambda: hash_keys([1, key]),
        lambda: key_group(key, 128),
    ):
        with pytest.raises(UnstableKeyError, match=reason) as caught:
            attempt()
        assert type(key).__qualname__ in str(caught.value)


@given(st.lists(KEYS))
def test_hashing_many_keys_gives_what_hashing_each_gives(keys: list[Any]) -> None:
    assert_same_hashes(hash_keys(keys), keys)


@pytest.mark.parametrize(
    "elements",
    [
        st.integers(-(2**63), 2**63 - 1) | st.booleans(),
        st.integers(),
        st.integers(0, 2**64 - 1),
        ANY_TEXT,
        st.text(st.characters(codec="ascii"), max_size=200),
        st.binary(max_size=200),
        st.tuples(st.integers(), ANY_TEXT),
    ],
    ids=["int64", "int", "uint64", "text", "ascii", "bytes", "tuple"],
)
@given(st.data())
def test_hashing_many_keys_of_one_type_gives_what_hashing_each_gives(
    elements: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(elements, min_size=1))
    assert_same_hashes(hash_keys(keys), keys)


def test_texts_longer_than_the_table_of_powers_hash_alike() -> None:
    size = 1 << 16
    keys = ["a", "", "b" * size, "", "c" * (size + 1), "d" * (3 * size + 5), "e" * (size - 1), "f"]
    assert_same_hashes(hash_keys(keys), keys)
    assert_same_hashes(hash_column(pa.array(keys)), keys)
    many = [f"key-{i}" for i in range(3 * size // 8)]
    assert_same_hashes(hash_keys(many), many)


def assert_same_hashes(found: Any, keys: Sequence[Any]) -> None:
    assert found.dtype == np.uint64
    assert found.tolist() == [key_hash(key) for key in keys]


# Columns

DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))
INSTANTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
SECONDS = INSTANTS.map(lambda value: value.replace(microsecond=0))
MILLIS = INSTANTS.map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000))
UTF8 = st.text(st.characters(codec="utf-8"), max_size=20)
COLUMNS = {
    **{
        kind: st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    **{
        kind: st.integers(0, 2**kind.bit_width - 1)
        for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    pa.bool_(): st.booleans(),
    pa.null(): st.none(),
    pa.string(): UTF8,
    pa.large_string(): UTF8,
    pa.string_view(): UTF8,
    pa.binary(): st.binary(),
    pa.large_binary(): st.binary(),
    pa.binary_view(): st.binary(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): DAYS,
    pa.date64(): DAYS,
    pa.timestamp("s"): SECONDS,
    pa.timestamp("ms"): MILLIS,
    pa.timestamp("us"): INSTANTS,
    pa.timestamp("ns"): INSTANTS,
    pa.timestamp("us", "UTC"): INSTANTS.map(lambda value: value.replace(tzinfo=dt.UTC)),
    pa.timestamp("ms", "Europe/Berlin"): MILLIS.map(lambda value: value.replace(tzinfo=dt.UTC)),
    pa.timestamp("s", "+05:30"): SECONDS.map(lambda value: value.replace(tzinfo=dt.UTC)),
    pa.dictionary(pa.int8(), pa.string()): UTF8,
    pa.dictionary(pa.int32(), pa.int64()): st.integers(-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
@given(st.data())
def test_column_hashes_as_its_rows_do(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | COLUMNS[kind], max_size=12))
    column = pa.array(values, kind)
    start = data.draw(st.integers(0, len(values)))
    for part in (column, column[start:], column[:start], column[start : start + 2]):
        assert_same_hashes(hash_column(part), part.to_pylist())


def test_both_passes_of_an_hour_hash_alike_in_rows_and_columns() -> None:
    start = dt.datetime(2024, 10, 26, 22, tzinfo=dt.UTC)
    instants = [start + dt.timedelta(minutes=15 * i) for i in range(24)]
    column = pa.array(instants, pa.timestamp("us", "Europe/Berlin"))
    assert_same_hashes(hash_column(column), column.to_pylist())


def test_nanoseconds_beyond_a_datetime_are_left_out() -> None:
    column = pa.array([1_999, 1_000, -1, -1_000], pa.timestamp("ns"))
    hashes = hash_column(column).tolist()
    assert hashes[0] == hashes[1] == key_hash(dt.datetime(1970, 1, 1, microsecond=1))
    assert hashes[2] == hashes[3] == key_hash(dt.datetime(1969, 12, 31, 23, 59, 59, 999_999))


def test_dictionary_column_may_hold_nulls_in_indices_and_in_values() -> None:
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 2, 1], pa.int8()), pa.array(["a", None, "c"])
    )
    assert_same_hashes(hash_column(column), ["a", None, None, "c", None])
    assert_same_hashes(hash_column(column[1:3]), [None, None])
    assert_same_hashes(hash_column(column[:0]), [])


@given(st.lists(st.tuples(st.none() | st.integers(-5, 5), st.none() | UTF8), min_size=1))
@example([(1, "a"), (None, None)])
def test_several_columns_hash_as_tuples(keys: list[tuple[int | None, str | None]]) -> None:
    numbers, names = zip(*keys, strict=True)
    columns = [pa.array(numbers, pa.int64()), pa.array(names, pa.string())]
    assert_same_hashes(hash_columns(columns), keys)
    assert_same_hashes(hash_columns(columns[1:]), names)


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_allowed_column_types_have_no_reason_against_them(kind: pa.DataType) -> None:
    assert check_key_type(kind) is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(),
        pa.float64(),
        pa.decimal128(5, 2),
        pa.time32("s"),
        pa.duration("s"),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.dictionary(pa.int8(), pa.float64()),
    ],
    ids=str,
)
def test_other_column_types_are_refused_with_a_reason(kind: pa.DataType) -> None:
    reason = check_key_type(kind)
    assert reason is not None
    assert "cannot be keys" in reason
    with pytest.raises(UnstableKeyError, match="cannot be keys"):
        hash_column(pa.nulls(1, kind))


# Distribution

GROUPS = 128


@pytest.mark.parametrize(
    "keys",
    [
        range(100_000),
        range(0, 6_400_000, 64),
        range(0, 100_000 << 32, 1 << 32),
        range(-50_000, 50_000),
        [f"key-{i}" for i in range(100_000)],
        [f"{i:08d}" for i in range(100_000)],
        [str(i).encode() for i in range(100_000)],
        [chr(65 + i % 26) + "x" * (i // 26 % 20) + str(i // 520) for i in range(100_000)],
        [(i % 100, f"n{i // 100}") for i in range(100_000)],
        [dt.date.fromordinal(600_000 + i) for i in range(100_000)],
    ],
    ids=lambda keys: repr(keys[1]),
)
def test_keys_spread_evenly_over_groups(keys: Sequence[Any]) -> None:
    counts = np.bincount(key_groups(keys, GROUPS), minlength=GROUPS)
    expected = len(keys) / GROUPS
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 127 degrees of freedom: mean 127, standard deviation 16; evenly wrong would be near 0.
    assert 60 < chi_square < 220


# Groups and subtasks


@given(st.integers(1, 300), st.integers(1, 300))
@example(3, 128)
@example(128, 128)
def test_group_ranges_are_those_of_subtask_of_group(parallelism: int, maximum: int) -> None:
    for subtask in range(parallelism):
        owned = [g for g in range(maximum) if subtask_of_group(g, parallelism, maximum) == subtask]
        assert list(group_range(subtask, parallelism, maximum)) == owned


@given(KEYS, st.integers(1, 32768))
def test_key_group_is_below_the_maximum_and_the_same_in_bulk(key: Any, maximum: int) -> None:
    group = key_group(key, maximum)
    assert 0 <= group < maximum
    assert key_groups([key], maximum).tolist() == [group]
    assert key_groups([key], maximum).dtype == np.int64


# Router


@given(st.lists(KEYS, min_size=1), st.integers(1, 8))
def test_router_gives_the_owner_of_the_key_group(keys: list[Any], parallelism: int) -> None:
    router = KeyRouter(range(parallelism), 128, entries_max=3)
    owners = [subtask_of_group(key_group(key, 128), parallelism, 128) for key in keys]
    assert [router[key] for key in keys] == owners
    assert [router[key] for key in keys] == owners
    assert len(router) <= 3


def test_router_remembers_keys_up_to_its_limit() -> None:
    router = KeyRouter(range(2), 128, entries_max=100)
    for key in range(100):
        assert router[key] in (0, 1)
    assert len(router) == 100
    assert router["one more"] in (0, 1)
    assert len(router) == 1


@given(st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_hashes_of_numbers_tell_the_numbers(numbers: list[int]) -> None:
    array = np.array(numbers, np.uint64)
    hashes = hashing.mix_array(array, hashing.INT)
    assert hashing.unmix_array(hashes, hashing.INT).tolist() == numbers
