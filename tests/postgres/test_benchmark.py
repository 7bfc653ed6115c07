"""The cases of `benchmarks.connectors` that need a server; each looks at its results itself."""

from __future__ import annotations

import pytest

from benchmarks.connectors import append, changes
from tests.postgres.server import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.processes]


def test_rates_are_measured_and_nothing_is_left(server: Postgres) -> None:
    assert append(server.uri, 5000)["records_per_s"] > 0
    assert changes(server.uri, 2500)["records_per_s"] > 0
    assert server.rows("SELECT slot_name FROM pg_replication_slots") == []
    assert server.rows("SELECT pubname FROM pg_publication") == []
    tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'minirt_benchmark'"
    assert server.rows(tables) == [(0,)]
