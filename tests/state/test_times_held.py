"""Aggregates that hold values take times for what Arrow takes them for: instants, with all digits."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.aggregates import (
    Aggregate,
    ArgMax,
    ArgMin,
    Collect,
    CountDistinct,
    First,
    Last,
    Max,
    Min,
    TopN,
)
from minirt.data.values import pack_value
from minirt.state.accumulators import accumulator

NIGHT = int(dt.datetime(2024, 10, 26, 23, tzinfo=dt.UTC).timestamp())
"""The hour from 0 to 1 UTC shows the same times in Berlin as that from 1 to 2."""

TYPES = [
    pa.timestamp("us", "Europe/Berlin"),
    pa.timestamp("s", "Europe/Berlin"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.timestamp("ns"),
    pa.duration("ns"),
    pa.time64("ns"),
]
OF_TIMES = [
    *(CountDistinct("v"), First("v"), Last("v"), Min("v"), Max("v"), Collect("v")),
    *(TopN("v", n=3), TopN("v", n=2, least=True)),
]
BY_TIMES = [ArgMin("v", by="t"), ArgMax("v", by="t"), TopN("v", n=3, by="t")]


def ticks(type: pa.DataType, ten_minutes: list[int]) -> list[int]:
    """As whole numbers of the unit of the type, the last digit of which is its own."""
    unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type.unit]
    start = 0 if pa.types.is_time(type) else NIGHT
    return [(start + 600 * n) * unit + n for n in ten_minutes]


def plain(result: Any) -> Any:
    """A result as numbers."""
    kind = result.type
    if pa.types.is_list(kind):
        return plain(result[0].values)
    return result.view(pa.int64()).to_pylist() if pa.types.is_temporal(kind) else result.to_pylist()


def computed(aggregate: Aggregate, batches: list[pa.Array]) -> Any:
    """Stored and loaded behind each batch, in turn by adding and by merging it."""
    slot = np.zeros(1, np.int64)
    made = accumulator(aggregate, batches[0].type)
    made.make_room(1)
    for place, batch in enumerate(batches):
        other = accumulator(aggregate, batch.type)
        other.make_room(1)
        target = other if place % 2 else made
        target.add(np.zeros(len(batch), np.int64), batch)
        if target is other:
            made.merge(slot, other, slot)
        stored = made.stored(slot)
        made = accumulator(aggregate, batch.type)
        made.make_room(1)
        made.load(slot, stored)
    return plain(made.result(slot))


@pytest.mark.parametrize("type", TYPES, ids=str)
@given(
    batches=st.lists(st.lists(st.integers(0, 24), min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_times_are_as_numbers_are(type: pa.DataType, batches: list[list[int]]) -> None:
    numbers = [pa.array(ticks(type, batch), pa.int64()) for batch in batches]
    times = [array.view(type) for array in numbers]
    for aggregate in OF_TIMES:
        assert computed(aggregate, times) == computed(aggregate, numbers), aggregate
    names, values = ["v", "t"], [pa.array(batch) for batch in batches]

    def pairs(by: list[pa.Array]) -> list[pa.Array]:
        return [
            pa.StructArray.from_arrays([v, t], names=names) for v, t in zip(values, by, strict=True)
        ]

    for aggregate in BY_TIMES:
        assert computed(aggregate, pairs(times)) == computed(aggregate, pairs(numbers)), aggregate
    swapped = [
        pa.StructArray.from_arrays([t, v], names=names) for t, v in zip(times, values, strict=True)
    ]
    whole = [
        pa.StructArray.from_arrays([n, v], names=names)
        for n, v in zip(numbers, values, strict=True)
    ]
    for aggregate in BY_TIMES:
        assert computed(aggregate, swapped) == computed(aggregate, whole), aggregate


def test_what_was_stored_as_times_is_still_known() -> None:
    """Checkpoints of before hold times where numbers are held now."""
    type, slot = TYPES[0], np.zeros(1, np.int64)
    for aggregate, expected in ((CountDistinct("v"), [2]), (TopN("v", n=2), None)):
        made = accumulator(aggregate, type)
        made.make_room(1)
        times = pa.array(ticks(type, [1, 2]), pa.int64()).view(type)
        old = times.to_pylist() if expected else [[time, time] for time in times.to_pylist()]
        packed = pa.array([pack_value(old)], pa.large_binary())
        made.load(slot, [pa.nulls(1, type), packed])
        made.add(np.zeros(2, np.int64), times)
        assert plain(made.result(slot)) == (expected or [ticks(type, [2])[0]] * 2)
