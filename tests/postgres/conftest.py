from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
pytest.importorskip("psycopg", reason="psycopg, which the tests read with, is not installed")

from tests.postgres.replica import drop_tables, make_tables
from tests.postgres.server import Postgres, a_server


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with a_server() as started:
        yield started


@pytest.fixture
def table(server: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty table `id`, `name` of its own."""
    server.run("DROP TABLE IF EXISTS results", "CREATE TABLE results (id bigint, name text)")
    yield "results"
    server.run("DROP TABLE IF EXISTS results, minirt_commits")


@pytest.fixture
def accounts_and_notes(server: Postgres) -> Iterator[None]:
    """These tables, published as `changes`, with some rows."""
    make_tables(server)
    yield
    drop_tables(server)
