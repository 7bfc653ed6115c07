"""The disk of a table is full for a while: output waits, and then each record is there once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import minirt as rt
from minirt.io import Sink
from minirt_connectors.database import DatabaseSink
from minirt_connectors.delta import DeltaSink
from tests.campaigns import soaked
from tests.disks import grow, small_disk
from tests.jobs import named_rows
from tests.runtime.processes import wait_until
from tests.tables.test_iceberg import Place
from tests.tables.test_kills import KINDS

pytestmark = pytest.mark.processes

RECORDS = 20_000
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def sink_of(kind: str, table: Path) -> Sink:
    if kind == "iceberg":
        return Place(table).sink()
    if kind == "delta":
        return DeltaSink(str(table), schema=SCHEMA)
    return DatabaseSink("sqlite3", {"database": str(table)}, "t", SCHEMA)


@pytest.mark.parametrize("kind", ["delta", "sqlite", *soaked("iceberg")])
def test_output_waits_for_room(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk("96k") as disk:
        table = disk / "table"
        KINDS[kind].prepare(table)
        job = named_rows(sink_of(kind, table), RECORDS, 0.0001, job="narrow").start(
            checkpointing=rt.Checkpointing(tmp_path / "chk", interval=0.1),
            restart=rt.Restart.fixed_delay(None, 0.1),
        )
        full = ("No space left", "disk is full", "disk I/O error")
        wait_until(lambda: any(text in caplog.text for text in full), "the disk is full", 60)
        grow(disk)
        job.wait(120)
        assert KINDS[kind].count(table, RECORDS) == (0, 0)
