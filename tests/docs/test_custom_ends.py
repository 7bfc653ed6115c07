"""What the examples add of their own keeps to the contracts, as what users add should."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from examples.custom_sink import TableSink
from examples.custom_source import TableSource, fill
from examples.impatient_mode import Impatient
from minirt.testing.contracts import SinkContract, SourceContract
from minirt.testing.contracts.mode import ModeContract

ROWS = 1700


class TestTableSource(SourceContract):
    @pytest.fixture
    def source(self, tmp_path):
        fill(str(tmp_path / "log.db"), ROWS)
        return TableSource(str(tmp_path / "log.db"))

    @pytest.fixture
    def expected(self):
        return [
            {"id": n + 1, "level": "info" if n % 10 else "error", "text": f"line {n}"}
            for n in range(ROWS)
        ]


class TestTableSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _table(self, tmp_path):
        self.path = str(tmp_path / "results.db")

    def new_sink(self):
        return TableSink(self.path)

    def visible(self, sink):
        with closing(sqlite3.connect(self.path)) as db:
            if not db.execute("select 1 from sqlite_master where name = 'results'").fetchone():
                return []
            rows = db.execute("select id, name from results order by rowid").fetchall()
        return [{"id": id, "name": name} for id, name in rows]

    def pending(self):
        return []


class Patient(Impatient):
    patience_s = 5.0


@pytest.mark.parametrize("mode", [Impatient(), Patient()], ids=["late", "often in time"])
class TestImpatient(ModeContract):
    pass
