from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
pytest.importorskip("psycopg", reason="psycopg, which the tests read with, is not installed")

from tests.needs import lacks
from tests.postgres.replica import drop_tables, make_tables
from tests.postgres.server import Postgres, programs
from tests.servers import running


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    bin = programs()
    if bin is None:
        lacks(
            "postgres",
            "initdb is missing: .ci/install-services installs it, TEST_POSTGRES_BIN names it",
        )
    with running("postgres", lambda folder: Postgres(folder, bin)) as started:
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
