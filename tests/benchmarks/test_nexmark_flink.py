"""NexMark beside Flink, where `make bench-peers` has installed it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.nexmark import running
from benchmarks.nexmark.files import write_events
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.source import BLOCK_EVENTS
from benchmarks.systems import watched
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.workload import Workload
from tests.needs import lacks

pytestmark = pytest.mark.processes

EVENTS = 4 * BLOCK_EVENTS
WORKLOAD = Workload(seed=6)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> running.Setting:
    if reason := running.missing("flink"):
        lacks("flink", reason)
    folder = tmp_path_factory.mktemp("events")
    write_events(WORKLOAD, EVENTS, folder)
    return running.Setting(folder, EVENTS, parallelism=2, checkpoint_ms=1000)


def bid(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("auction", "bidder", "price", "extra"))


def test_flink_reads_the_same_events(setting: running.Setting, tmp_path: Path) -> None:
    """q10 tells: it writes all bids to files."""
    watched(running.flink_command(QUERIES["q10"], setting, tmp_path), "q10")
    lines = [
        line
        for file in (tmp_path / "out").rglob("*")
        if file.is_file()
        for line in file.read_text().splitlines()
    ]
    expected = generator(WORKLOAD).events("bid", 0, EVENTS).to_pylist()
    assert Counter(map(bid, map(json.loads, lines))) == Counter(map(bid, expected))


def test_a_run_is_measured(setting: running.Setting) -> None:
    row = running.flink_run(QUERIES["q2"], setting)
    assert (row["query"], row["system"], row["events"]) == ("q2", "flink", EVENTS)
    assert row["events_per_s"] > 0 < row["cpu_s_per_million"]
