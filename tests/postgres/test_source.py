"""The PostgreSQL source against a real server."""

from __future__ import annotations

from typing import Any

import pytest

import minirt as rt
from minirt.testing.contracts import SourceContract
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
