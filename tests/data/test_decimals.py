"""Decimals of records become columns of one type, whichever records come together."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Rows
from minirt.data.simple_columns import DECIMAL, steady
from minirt.io.schemas import ColumnEncoder
from minirt.operators.common.columns import to_columns

WITHIN = st.decimals(-(10**19), 10**19, allow_nan=False, places=18) | st.decimals(
    -100, 100, allow_nan=False, places=2
)


@given(st.lists(st.none() | WITHIN, min_size=1))
def test_batches_have_one_type_and_the_values_that_they_had(values: list[Decimal | None]) -> None:
    records = [{"v": value, "in": {"all": [value, Decimal(1)]}} for value in values]
    table = to_columns(Rows(records), "out").table
    assert table.schema.field("in").type == pa.struct([("all", pa.list_(DECIMAL))])
    assert table.schema.field("v").type in (DECIMAL, pa.null())
    assert table.to_pylist() == records


@pytest.mark.parametrize("wide", ["1e20", "1e-19", "1e40"])
def test_decimals_that_have_no_room_stay_as_they_are_and_others_do_not_care(wide: str) -> None:
    records = [{"wide": Decimal(wide), "v": Decimal("1.5")}]
    table = steady(pa.RecordBatch.from_pylist(records))
    assert table.schema.field("v").type == DECIMAL
    assert table.to_pylist() == records


def test_columns_without_decimals_are_not_touched() -> None:
    table = pa.RecordBatch.from_pylist([{"a": 1, "b": ["x"]}])
    assert steady(table) is table


def maxima(prices: list[str]) -> list[Any]:
    env = rt.Environment("prices", parallelism=1)
    records = [{"shop": 1, "price": Decimal(price)} for price in prices]
    greatest = rt.CollectSink()
    each_alone = env.source(rt.CollectionSource(records), uid="in").map(lambda one: one, uid="same")
    each_alone.key_by("shop").aggregate(rt.Max("price", "greatest"), uid="max").sink(greatest)
    env.execute(runner="inline")
    return [record["greatest"] for record in greatest.rows]


def test_an_aggregate_takes_decimals_of_any_digits() -> None:
    assert maxima(["1.25", "12.5", "123456.789", "3"])[-1] == Decimal("123456.789")


def test_a_writer_takes_decimals_of_more_digits_than_its_first_batch_had() -> None:
    encoder = ColumnEncoder("out", None)
    batches = [Rows([{"price": Decimal(price)}]) for price in ("1.25", "12345.6789")]
    found = [encoder.encode(batch) for batch in batches]
    assert [one.schema.field("price").type for one in found] == [DECIMAL, DECIMAL]
    assert found[1].to_pylist() == batches[1].records
