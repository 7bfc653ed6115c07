"""What minirt makes of the NexMark queries, to be compared with what others make of them."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import minirt as rt
from benchmarks.nexmark.events import WATERMARKS, Events
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.source import NexmarkSource
from minirt.laboratory.nexmark.workload import Workload

Row = dict[str, Any]

EVENTS = 10_000
OF_DAYS = Workload(seed=11, rate=0.1)
"""Slow enough for the events to go through all hours of more than one day."""
OF_SECONDS = Workload(seed=11, rate=100)
"""Fast enough for windows of seconds to hold many events, and auctions to be open for some seconds."""

LARGE_SLICES = rt.Options(limits=rt.Limits(slice_s=0.1))
"""On a busy machine slices end early, and batches become many."""

_RUN_S = 2.5
"""How long the events of a run take that is killed."""

WORKLOADS = {"days": OF_DAYS, "seconds": OF_SECONDS}
_BY_SECONDS = {"q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q20"}


def pace_of(name: str) -> str:
    """Which of the workloads says most about a query."""
    return "seconds" if name in _BY_SECONDS else "days"


def results(name: str, folder: Path) -> list[Row]:
    """What counts of the results of a query, over the events of its workload, without processes."""
    source = NexmarkSource(EVENTS, workload=WORKLOADS[pace_of(name)], block_events=700)
    env = rt.Environment(name, parallelism=2)
    read = _build(env, name, Events.of(env, source), folder)
    env.execute(runner="inline", options=LARGE_SLICES)
    return read()


def killed_twice(name: str, mode: Any, folder: Path) -> list[Row]:
    """As `results`, of worker processes two of which die by SIGKILL: after a third, and two thirds."""
    workload = WORKLOADS[pace_of(name)]
    marks = [folder / f"killed-{place}" for place in (1, 2)]
    source = _Deadly(
        NexmarkSource(EVENTS, workload=workload, block_events=100),
        {EVENTS * place // 3: mark for place, mark in enumerate(marks, start=1)},
    )
    env = rt.Environment(name, parallelism=2)
    speed = EVENTS / workload.rate / _RUN_S
    stream = env.source(source, watermarks=WATERMARKS, speed=speed, uid="events")
    read = _build(env, name, Events(stream), folder / "results")
    result: Any = env.execute(
        checkpointing=rt.Checkpointing(folder / "checkpoints", interval="50ms", mode=mode),
        restart=rt.Restart.fixed_delay(4, "10ms"),
        options=rt.Options(placement="slots", workers=2),
    )
    assert all(mark.exists() for mark in marks)
    assert result.restarts == len(marks)
    return read()


def _build(env: rt.Environment, name: str, events: Events, folder: Path) -> Callable[[], list[Row]]:
    """The query and its sink; the function that is returned reads its results once the job has ended."""
    query = QUERIES[name]
    stream = query.stream(events)
    if query.folders:
        stream.sink(rt.ParquetSink(folder, partition_by=query.folders), uid="results")
        return lambda: _of_folders(folder)
    sink = rt.CollectSink()
    stream.sink(sink, uid="results")
    return lambda: last_of(sink.rows, query.replaced_by)


class _Deadly(rt.Source):
    """Kills the process that reads it, once at each of some positions."""

    interleave = True

    def __init__(self, source: NexmarkSource, deaths: Mapping[int, Path]) -> None:
        self._source = source
        self._deaths = deaths

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return self._source.plan_splits(parallelism)

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _DeadlyReader(self._source.open_split(split, offset), self._deaths)

    def schema(self) -> Any:
        return self._source.schema()


class _DeadlyReader(rt.SplitReader):
    def __init__(self, reader: rt.SplitReader, deaths: Mapping[int, Path]) -> None:
        self._reader = reader
        self._deaths = deaths

    @property
    def offset(self) -> Any:  # type: ignore[override]
        return self._reader.offset

    def read(self) -> Any:
        for position, mark in self._deaths.items():
            if self.offset >= position and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self._reader.read()


def last_of(rows: list[Row], key: tuple[str, ...]) -> list[Row]:
    """Of the rows that are equal in the columns of a key the last one; all without a key."""
    if not key:
        return rows
    return list({tuple(row[name] for name in key): row for row in rows}.values())


def _of_folders(folder: Path) -> list[Row]:
    """The rows of files, with the columns that the names of folders hold."""
    rows = []
    for file in folder.glob("[!_]*/**/*.parquet"):
        named = [part.split("=", 1) for part in file.relative_to(folder).parts[:-1]]
        held = {name: value.replace("%3A", ":") for name, value in named}
        rows += [row | held for row in pq.ParquetFile(file).read().to_pylist()]
    return rows


def in_order(rows: list[Row]) -> list[str]:
    """The rows as a bag that can be compared: sorted, and times as UTC."""
    return sorted(
        repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows
    )


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
