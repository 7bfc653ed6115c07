"""The law of event time: results depend on the records, and not on how these are cut, dealt and read.

Each example draws a job, its records, and two ways to read them: all in one split in order, as the measure,
and cut into splits, batches and subtasks, with waits in between, kills and restores at another parallelism.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.runtime.input import splits as of_splits
from minirt.testing import TransactionalSink, simulate
from tests.campaigns import runs

BOUND_MS = 4
KEYS = ("a", "b", "c")
SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("n", pa.int64())])

Records = list[dict[str, Any]]


@dataclass
class Cut:
    """How records are read."""

    splits: list[Records]
    batch: int
    columns: bool
    waits: int
    """After how many batches a split has nothing for once; 0 for never."""
    interleave: bool | None = None


class Cuts(rt.Source):
    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.interleave = cut.interleave

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(str(place), {"place": place}) for place in range(len(self.cut.splits))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self.cut, self.cut.splits[split.info["place"]], offset or 0)


class _Reader(rt.SplitReader):
    def __init__(self, cut: Cut, records: Records, offset: int) -> None:
        self.offset = offset
        self._cut, self._records = cut, records
        self._asked = 0

    def read(self) -> list[Any] | pa.RecordBatch | None:
        if self.offset == len(self._records):
            return None
        self._asked += 1
        if self._cut.waits and self._asked % self._cut.waits == 0:
            return []
        # Reading again gives the same batches, as a file does.
        stop = min(len(self._records), self.offset + 1 + (self.offset * 7) % self._cut.batch)
        found = [dict(record) for record in self._records[self.offset : stop]]
        self.offset = stop
        return pa.RecordBatch.from_pylist(found, SCHEMA) if self._cut.columns else found


class Spans(rt.KeyedProcess):
    """Counts the records of each ten milliseconds, by a timer of event time for each."""

    counts = rt.MapState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        end = record["at"] // 10 * 10 + 9
        self.counts[end] = self.counts.get(end, 0) + 1
        ctx.set_timer(end)
        return []

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield {"k": ctx.key, "end": timestamp, "n": self.counts[timestamp]}
        del self.counts[timestamp]


# Functions of batches: what each gives of a record does not depend on its batch.


def odd_rows(records: Records) -> Records:
    return [record for record in records if record["n"] % 2]


def odd_columns(table: pa.RecordBatch) -> pa.RecordBatch:
    return table.filter(pc.equal(pc.bit_wise_and(table["n"], 1), 1))


def sorted_rows(records: Records) -> Records:
    return sorted(records, key=lambda record: (record["k"], -record["n"]))


def sorted_columns(table: pa.RecordBatch) -> pa.RecordBatch:
    return table.take(pc.sort_indices(table, [("k", "ascending"), ("n", "descending")]))


def twice_rows(records: Records) -> Records:
    return [{**record, "copy": copy} for record in records for copy in range(record["n"] % 3)]


def twice_columns(table: pa.RecordBatch) -> pa.RecordBatch:
    places = [p for p, n in enumerate(table["n"].to_pylist()) for _ in range(n % 3)]
    return table.take(pa.array(places, pa.int64()))


def last_first(records: Records) -> Records:
    records.reverse()
    return records


def renamed(table: pa.RecordBatch) -> pa.RecordBatch:
    kept = table.filter(pc.greater(table["n"], 3))
    return kept.rename_columns(["k", "was", "n"]).append_column("at", kept["at"])


BEFORE: dict[str, Any] = {
    "nothing": lambda stream: stream,
    "filter": lambda stream: stream.filter(pc.greater(pc.field("n"), 3)),
    "odd rows": lambda stream: stream.map_batches(odd_rows),
    "odd columns": lambda stream: stream.map_batches(odd_columns, "columns"),
    "sorted rows": lambda stream: stream.map_batches(sorted_rows),
    "sorted columns": lambda stream: stream.map_batches(sorted_columns, "columns"),
    "rows several times": lambda stream: stream.map_batches(twice_rows),
    "columns several times": lambda stream: stream.map_batches(twice_columns, "columns"),
    "the list turned around": lambda stream: stream.map_batches(last_first),
    "stamped anew": lambda stream: stream.map_batches(renamed, "columns", timestamp="was"),
    "gathered": lambda stream: stream.map_batches(odd_rows, size=7, wait="1ms"),
}


def window(kind: rt.Window) -> Any:
    return lambda left, right: left.key_by("k").window(kind).aggregate(*FIGURES, uid="it")


FIGURES = rt.Count("c"), rt.Sum("n", "sum")

JOBS: dict[str, Any] = {
    "tumbling": window(rt.Tumbling("10ms")),
    "sliding": window(rt.Sliding("12ms", "4ms")),
    "session": window(rt.Session("5ms")),
    "of all": lambda left, right: left.window_all(rt.Tumbling("10ms")).aggregate(
        *FIGURES, uid="it"
    ),
    "union": lambda left, right: window(rt.Tumbling("10ms"))(left.union(right), right),
    "rows": lambda left, right: (
        left.map(lambda r: (r["k"], r["n"]))
        .key_by(lambda pair: pair[0])
        .window(rt.Tumbling("10ms"))
        .reduce(lambda one, other: (one[0], one[1] + other[1]), uid="it")
        .map(lambda pair: {"k": pair[0], "sum": pair[1]})
    ),
    "timers": lambda left, right: left.key_by("k").process(Spans(), uid="it"),
    "interval join": lambda left, right: left.join(right, on="k", within=("-3ms", "6ms"), uid="it"),
    "left join": lambda left, right: left.join(
        right,
        on="k",
        within=(0, "2ms"),
        how="left",
        columns=(["k", "at", "n"], ["k", "at", "n"]),
        uid="it",
    ),
    "window join": lambda left, right: left.join(
        right, on="k", window=rt.Tumbling("5ms"), uid="it"
    ),
    "as of": lambda left, right: left.join_as_of(right, on="k", uid="it"),
    "as of, at most so old": lambda left, right: left.join_as_of(
        right, on="k", tolerance="7ms", allowed_lateness="1s", uid="it"
    ),
}
TWO_INPUTS = {"union"} | {name for name in JOBS if "join" in name or "as of" in name}


def job(
    name: str, before: str, cuts: Sequence[Cut], parallelism: int, emit: str, sink: rt.Sink
) -> Any:
    env = rt.Environment(parallelism=parallelism, max_parallelism=8)
    marks = rt.Watermarks.bounded(f"{BOUND_MS}ms", timestamp="at", idle_timeout="10min", emit=emit)
    left, *others = (
        env.source(Cuts(cut), uid=f"source-{place}", watermarks=marks)
        for place, cut in enumerate(cuts)
    )
    [right] = others or [None]
    results = JOBS[name](BEFORE[before](left), right)
    # Which event time results have shows in the windows behind them.
    counted = results.window_all(rt.Tumbling("7ms")).aggregate(
        rt.Count("results"), uid="of-results"
    )
    told = results.map(lambda row: ("result", row)), counted.map(lambda row: ("count", row))
    told[0].union(told[1]).sink(sink, uid="out")
    return env


def plain(rows: Iterable[Any]) -> list[str]:
    return sorted(
        repr((tag, sorted(row.items()) if isinstance(row, dict) else row)) for tag, row in rows
    )


def in_order(cut: Cut) -> Cut:
    """The same records in one split, none of them behind another."""
    records = [record for split in cut.splits for record in split]
    return Cut([sorted(records, key=lambda record: (record["at"], record["n"]))], 5, True, 0)


def measure(name: str, before: str, cuts: Sequence[Cut]) -> list[str]:
    sink = rt.CollectSink()
    env = job(name, before, [in_order(cut) for cut in cuts], 1, "periodic", sink)
    env.execute(runner="inline")
    return plain(sink.rows)


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Splits whose event times overlap, follow each other or lie apart; some of them empty."""
    random = draw(st.randoms(use_true_random=False))
    splits: list[Records] = []
    taken: set[tuple[str, int]] = set()
    for _ in range(draw(st.integers(1, 8))):
        base, records = random.choice([0, 0, random.randrange(120)]), []
        for _ in range(random.choice([0, 2, 12])):
            base += random.choice([0, 1, 1, 2, 9])
            key, at = random.choice(KEYS), base - random.randrange(BOUND_MS + 1)
            # Of two versions of one time the last one counts, which is not for the records to say.
            if (key, at) not in taken:
                taken.add((key, at))
                records.append({"k": key, "at": at, "n": len(taken)})
        splits.append(records)
    return Cut(
        splits,
        draw(st.integers(1, 12)),
        draw(st.booleans()),
        draw(st.sampled_from([0, 0, 2, 3])),
        draw(st.sampled_from([None, None, True, False])),
    )


def differences(name: str, before: str, drawn: Sequence[Cut], emit: str, seed: int) -> list[str]:
    """What a simulation with kills and restores gives otherwise than the measure."""
    sink = TransactionalSink()
    first, *rescaled = (
        job(name, before, drawn, width, emit, sink) for width in Random(seed).sample([1, 2, 3], 2)
    )
    checkpointing = rt.Checkpointing(
        "simulated://", interval="20ms", mode=("aligned", "unaligned")[seed % 2]
    )
    result = simulate(first, seed=seed, checkpointing=checkpointing, rescaled=rescaled)
    found, right = plain(sink.rows), measure(name, before, drawn)
    extra = [one for one in found if found.count(one) > right.count(one)]
    missing = [one for one in right if right.count(one) > found.count(one)]
    return [
        *result.problems,
        *(f"extra {one}" for one in extra),
        *(f"missing {one}" for one in missing),
    ]


@settings(deadline=None, max_examples=runs(6))
@given(
    name=st.sampled_from(sorted(JOBS)),
    before=st.sampled_from(sorted(BEFORE)),
    drawn=st.tuples(cuts(), cuts()),
    emit=st.sampled_from(["periodic", "per record"]),
    opened=st.tuples(st.integers(0, 3), st.integers(1, 5)),
    seed=st.integers(0, 10_000),
)
def test_results_depend_on_the_records_alone(
    name: str,
    before: str,
    drawn: tuple[Cut, Cut],
    emit: str,
    opened: tuple[int, int],
    seed: int,
) -> None:
    """Few splits may be open at once, so that others are closed and go on later."""
    used = drawn if name in TWO_INPUTS else drawn[:1]
    with mock.patch.multiple(of_splits, OPEN_AHEAD_MAX=opened[0], OPEN_MAX=opened[1]):
        assert differences(name, before, used, emit, seed) == []


FORMS: dict[str, Any] = {
    "jsonl": rt.JsonlSource,
    "csv": rt.CsvSource,
    "parquet": rt.ParquetSource,
}


@settings(deadline=None, max_examples=runs(5))
@given(
    form=st.sampled_from(sorted(FORMS)),
    drawn=cuts(),
    parallelism=st.integers(1, 3),
    bound=st.sampled_from(["bounded", "iso", "column"]),
)
def test_windows_of_files_depend_on_their_records_alone(
    form: str, drawn: Cut, parallelism: int, bound: str
) -> None:
    """One file for each split; the measure is plain Python."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, records in enumerate(one for one in drawn.splits if one):
            write(folder / f"{place}.{form}", form, records, iso=bound == "iso" and form == "jsonl")
        if not any(drawn.splits):
            return
        env = rt.Environment(parallelism=parallelism)
        marks = rt.Watermarks.bounded(f"{BOUND_MS}ms", timestamp="at")
        if bound == "column":
            marks = rt.Watermarks.from_column("sure", timestamp="at")
        rows = env.source(FORMS[form](folder), uid="files", watermarks=marks)
        counts = rows.key_by("k").window(rt.Tumbling("10ms")).aggregate(*FIGURES, uid="counts")
        sink = rt.CollectSink()
        counts.sink(sink, uid="out")
        env.execute(runner="inline")
    expected: Counter[Any] = Counter()
    for record in (one for split in drawn.splits for one in split):
        expected[record["k"], record["at"] // 10 * 10] += 1
    found = {(r["k"], round(r["window_start"].timestamp() * 1000)): r["c"] for r in sink.rows}
    assert found == expected
    assert len(sink.rows) == len(expected)


def write(path: Path, form: str, records: Records, *, iso: bool) -> None:
    """Each record says in `sure` what all behind it are newer than."""
    rows, newest = [], -(10**6)
    for record in records:
        newest = max(newest, record["at"])
        rows.append({**record, "sure": newest - BOUND_MS - 1})
    if iso:
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))
        for row in rows:
            row["at"] = (epoch + dt.timedelta(hours=2, milliseconds=row["at"])).isoformat()
    table = pa.Table.from_pylist(rows)
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "csv":
        pa_csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=3)
