"""Events in files, what Flink is told of them, and what is made of the rows of both sides."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minirt as rt
from benchmarks.nexmark import flink_sql
from benchmarks.nexmark.files import BLOCKS, INDEX, ArrowEvents, write_events
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.running import summary
from benchmarks.nexmark.source import BLOCK_EVENTS
from minirt.io import Source
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.schemas import KINDS
from minirt.laboratory.nexmark.workload import Workload
from minirt.testing.contracts import SourceContract

WORKLOAD = Workload(seed=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of events."""
    place = tmp_path_factory.mktemp("events")
    write_events(WORKLOAD, 2 * BLOCK_EVENTS, place)
    return place


class TestArrowEvents(SourceContract):
    @pytest.fixture
    def source(self, folder: Path) -> Source:
        return ArrowEvents(folder)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return generator(WORKLOAD).events("all", 0, 2 * BLOCK_EVENTS).to_pylist()


def test_blocks_hold_the_same_events(folder: Path) -> None:
    starts = np.fromfile(folder / INDEX, ">i8")
    stored = (folder / BLOCKS).read_bytes()[starts[1] : starts[2]]
    expected = generator(WORKLOAD).events("all", BLOCK_EVENTS, 2 * BLOCK_EVENTS)
    numbers = np.frombuffer(stored, ">i4", BLOCK_EVENTS)
    assert numbers.tolist() == expected["event_type"].to_pylist()
    place = numbers.nbytes
    for kind in KINDS[:3]:
        rows = [row for row in expected[kind].to_pylist() if row is not None]
        assert int(np.frombuffer(stored, ">i4", 1, place)[0]) == len(rows)
        place += 4
        for name, first in rows[0].items():
            if isinstance(first, str):
                ends = np.frombuffer(stored, ">i4", len(rows) + 1, place)
                place += ends.nbytes
                texts = stored[place : place + ends[-1]]
                place += len(texts)
                found = [texts[a:b].decode() for a, b in pairwise(ends)]
            else:
                column = np.frombuffer(stored, ">i8", len(rows), place)
                place += column.nbytes
                whole = isinstance(first, int)
                found = (column if whole else column.astype("M8[ms]")).tolist()
            assert found == [row[name] for row in rows], (kind, name)
    assert place == len(stored)


def test_blocks_that_are_not_full_are_refused(tmp_path: Path) -> None:
    with pytest.raises(rt.ConfigurationError, match="multiple of 10000"):
        write_events(WORKLOAD, 15_000, tmp_path)


def test_flink_has_every_query_that_it_runs() -> None:
    runs = {name for name, query in QUERIES.items() if query.not_in_flink is None}
    assert flink_sql.QUERIES.keys() == runs


def test_the_summary_compares_medians() -> None:
    rates = {"minirt": [10, 40, 30], "flink": [5, 10, 20]}
    rows = [
        {"query": name, "system": system, "events_per_s": rate * factor, "cpu_s_per_million": 1.5}
        for name, factor in (("q0", 1), ("q1", 3))
        for system, of_all in rates.items()
        for rate in (of_all if name == "q0" or system == "flink" else [8])
    ]
    lines = summary(rows)
    assert [line.split("minirt is ")[1:] for line in lines[:4]] == [[], ["3.00 x"], [], ["0.80 x"]]
    assert lines[4].endswith("minirt is 1.55 x flink, at least 0.80 x")
