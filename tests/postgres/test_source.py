"""The PostgreSQL source against a real server."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.errors import SourceDataError
from minirt.testing.contracts import SourceContract, read_all
from minirt_connectors.postgres import PostgresSource
from tests.postgres.server import Postgres

pytestmark = pytest.mark.postgres
ROWS = 45_000


@pytest.fixture(scope="module")
def numbers(server: Postgres) -> Postgres:
    server.run(
        "DROP TABLE IF EXISTS numbers",
        "CREATE TABLE numbers (id int PRIMARY KEY, name text, price numeric(10,2), day date)",
        "INSERT INTO numbers SELECT n * 3, 'row ' || n, n / 4.0, DATE '2024-01-01' + n % 9 "
        f"FROM generate_series(1, {ROWS}) n",
    )
    return server


class TestPostgresSource(SourceContract):
    @pytest.fixture
    def source(self, numbers: Postgres) -> rt.Source:
        return PostgresSource(numbers.uri, "numbers", key="id", splits=2)

    @pytest.fixture
    def expected(self, numbers: Postgres) -> list[Any]:
        columns = ("id", "name", "price", "day")
        rows = numbers.rows("SELECT id, name, price, day FROM numbers ORDER BY id")
        return [dict(zip(columns, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("key", "message"), [("name", "whole numbers"), ("nothing", "no column 'nothing'")]
)
def test_a_key_that_cannot_order_is_refused(numbers: Postgres, key: str, message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        PostgresSource(numbers.uri, "numbers", key=key).validate()


def test_an_empty_table_has_no_splits(server: Postgres) -> None:
    server.run("DROP TABLE IF EXISTS empty", "CREATE TABLE empty (id int PRIMARY KEY)")
    assert PostgresSource(server.uri, "empty", key="id").plan_splits(2) == []


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_infinite_times_are_refused_or_null(server: Postgres, kind: str, value: str) -> None:
    server.run(
        "DROP TABLE IF EXISTS prices",
        f'CREATE TABLE prices (id int PRIMARY KEY, "it\'s until" {kind}, since {kind})',
        f"INSERT INTO prices VALUES (1, NULL, '2020-01-01'), (2, '{value}', NULL)",
        "INSERT INTO prices VALUES (3, '0044-03-15 BC', NULL)",
    )

    def read(**options: Any) -> list[Any]:
        source = PostgresSource(server.uri, "prices", key="id", splits=1, **options)
        [split] = source.plan_splits(1)
        reader = source.open_split(split, None)
        with closing(reader):
            batch = reader.read()
        assert isinstance(batch, pa.RecordBatch)
        return [column.is_valid().to_pylist() for column in batch.columns]

    with pytest.raises(
        SourceDataError, match=r"\"prices\": column \"it's until\" .* with the key 2"
    ):
        read()
    assert read(columns=["id", "since"]) == [[True] * 3, [True, False, False]]
    assert read(infinity="null")[1] == [False, False, True]
    with pytest.raises(rt.ConfigurationError, match="infinity must be one of"):
        read(infinity="largest")


def test_a_number_that_a_decimal_cannot_hold_names_its_column(server: Postgres) -> None:
    server.run(
        "DROP TABLE IF EXISTS prices",
        "CREATE TABLE prices (id int PRIMARY KEY, price numeric(10,2))",
        "INSERT INTO prices VALUES (1, 'NaN')",
    )
    source = PostgresSource(server.uri, "prices", key="id", splits=1)
    [split] = source.plan_splits(1)
    with pytest.raises(SourceDataError, match="column 'price' holds what decimal128"):
        read_all(source, split)
