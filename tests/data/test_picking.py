"""Rows that are picked of columns, and dealt to receivers, are those that Arrow picks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data import picking
from minirt.data.batch import Columns
from minirt.data.picking import picked
from minirt.kernels import choice
from minirt.kernels.choice import IMPLEMENTATIONS, choose_kernels
from minirt.partitionings.common.dealing import split

SECONDS = [dt.datetime(2026, 1, 1) + dt.timedelta(seconds=n) for n in range(40)]
TEXTS = ["", "a", "user-00000007", "a text that is longer than a few words of eight bytes", "ü€"]
NUMBERS = [(n * 7919) % 256 - 128 for n in range(40)]
COLUMNS: dict[str, list[Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "float32", "float64"), NUMBERS),
    **{kind: [abs(n) for n in NUMBERS] for kind in ("uint8", "uint16", "uint32", "uint64")},
}
ARRAYS: dict[str, pa.Array] = {
    **{kind: pa.array(values, kind) for kind, values in COLUMNS.items()},
    "half": pa.array(np.array(NUMBERS, np.float16)),
    "bool": pa.array([n % 3 == 0 for n in NUMBERS]),
    "date32": pa.array([each.date() for each in SECONDS]),
    "date64": pa.array(SECONDS, pa.date64()),
    "time32": pa.array([each.time() for each in SECONDS], pa.time32("s")),
    "time64": pa.array([each.time() for each in SECONDS], pa.time64("ns")),
    "timestamp": pa.array(SECONDS, pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array(NUMBERS, pa.duration("ms")),
    "interval": pa.array([(n, n + 1, n * 10**9) for n in NUMBERS], pa.month_day_nano_interval()),
    "decimal128": pa.array([Decimal(n) / 4 for n in NUMBERS], pa.decimal128(38, 2)),
    "decimal256": pa.array([Decimal(n) * 10**40 for n in NUMBERS], pa.decimal256(60, 2)),
    **{
        f"fixed {size}": pa.array([bytes([n % 251]) * size for n in range(40)], pa.binary(size))
        for size in (0, 1, 3, 8, 13, 16)
    },
    **{str(kind): pa.array(TEXTS * 8, kind) for kind in (pa.string(), pa.large_string())},
    **{
        str(kind): pa.array([text.encode() for text in TEXTS] * 8, kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    },
    "no texts": pa.array([""] * 40),
    "dictionary": pa.array(TEXTS * 8).dictionary_encode(),
    "null": pa.nulls(40),
    "list": pa.array([[n] * (n % 3) for n in range(40)]),
    "fixed list": pa.array([[n, n] for n in range(40)], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": n, "b": str(n)} for n in range(40)]),
    "map": pa.array([[(n, n)] for n in range(40)], pa.map_(pa.int64(), pa.int64())),
}
FEW = 10
"""From so many rows on, nulls are picked apart here."""


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picking, "_MANY", FEW)


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def kernels_in_use(request: pytest.FixtureRequest) -> Iterator[None]:
    before = choice.chosen()
    choose_kernels(request.param)
    yield
    choice._chosen = before


def shapes(array: pa.Array) -> Iterator[pa.Array]:
    """The array, and slices of it, without nulls and with some."""
    some = pa.array([n % 5 for n in range(40)])
    nulls = pa.array([None if n in (1, 3) else row for row, n in enumerate(some.to_pylist())])
    for each in (array,) if array.type == pa.binary_view() else (array, array.take(nulls)):
        yield each
        yield each.slice(3, 30)
        yield each.slice(9)


ROWS = (
    np.arange(20),
    np.arange(20)[::-1].copy(),
    np.array([5, 5, 0, 29, 5]),
    np.array([7]),
    np.empty(0, np.intp),
)


@pytest.mark.parametrize("name", ARRAYS)
def test_picked_rows_are_those_that_arrow_picks(name: str) -> None:
    for array in shapes(ARRAYS[name]):
        table = pa.record_batch([array, pa.array(range(len(array)))], ["a", "row"])
        for rows in ROWS:
            if array.type == pa.binary_view():
                with pytest.raises(pa.ArrowNotImplementedError):
                    picked(table, rows)
                assert Columns(table).take(rows).table.column("row").to_pylist() == rows.tolist()
                continue
            found = picked(table, rows)
            found.validate(full=True)
            assert found.equals(table.take(pa.array(rows)), check_metadata=True)


def test_nulls_are_picked_apart_where_values_have_one_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart: list[Any] = []
    whole = picking._picked_apart

    def noted(column: pa.Array, *others: Any) -> pa.Array:
        apart.append(column.type)
        return whole(column, *others)

    monkeypatch.setattr(picking, "_picked_apart", noted)
    numbers = pa.array([None, *range(30)])
    table = pa.record_batch([numbers, numbers.cast(pa.string())], ["n", "t"])
    for rows, expected in ((np.arange(FEW), [pa.int64()]), (np.arange(FEW - 1), [])):
        apart.clear()
        picked(table, rows)
        assert apart == expected
    picked(table.slice(1), np.arange(FEW))
    assert not apart


@pytest.mark.usefixtures("kernels_in_use")
@pytest.mark.parametrize("receivers", [1, 2, 3, 4, 128, 300])
@given(data=st.data())
def test_each_receiver_gets_its_records_in_their_order(receivers: int, data: st.DataObject) -> None:
    targets = data.draw(st.lists(st.integers(0, receivers - 1), max_size=40))
    names = [name for name in ARRAYS if name != "binary_view"]
    table = pa.record_batch([ARRAYS[name].slice(0, len(targets)) for name in names], names)
    times = np.arange(len(targets)) if data.draw(st.booleans()) else None
    chosen = np.array(targets, np.min_scalar_type(receivers - 1))
    if not targets:
        return
    parts = dict(split(Columns(table, times), chosen, receivers))
    assert sorted(parts) == sorted(set(targets))
    for receiver, part in parts.items():
        rows = [row for row, target in enumerate(targets) if target == receiver]
        assert part.table.equals(table.take(pa.array(rows)))
        assert part.timestamps is None if times is None else part.timestamps.tolist() == rows
