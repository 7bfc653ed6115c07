"""What a function does to a record after it handed it over, or to its own, is nobody else's business."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Batch
from minirt.data.custody import Custody
from minirt.errors import JobFailedError
from minirt.runtime.subtask import fan_out

Build = Callable[[rt.Stream, dict[str, Any]], rt.Stream]
COUNT = 5


def spoil(record: Any) -> Any:
    """Use a record up, and return what it was."""
    seen = {name: list(v) if isinstance(v, list) else v for name, v in record.items()}
    record["n"] = -1
    record.get("all", []).clear()
    return seen


def spoil_pair(pair: Any) -> Any:
    """Use the list in a tuple up, and return what it added up to."""
    total = sum(pair[1])
    pair[1].clear()
    return {"n": total}


def extend(total: Any, pair: Any) -> Any:
    total[1].extend(pair[1])
    return total


def change_every_other(total: Any, row: Any) -> Any:
    """A list from a tuple or a list, and after that the same list with another sum."""
    if row[0] % 2:
        return [total[0] + row[0]]
    total[0] += row[0]
    return total


def n_of(record: Any) -> Any:
    return record["n"]


def one_key(_: Any) -> int:
    return 0


def add(total: Any, record: Any) -> Any:
    return {"n": total["n"] + record["n"]}


def add_in_place(total: Any, record: Any) -> Any:
    total["n"] += record["n"]
    return total


class Remembering:
    """Returns the same dict each time."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {"all": []}

    def __call__(self, record: Any) -> Any:
        self.kept["n"] = record["n"]
        self.kept["all"].append(record["n"])
        return self.kept


class Again(Remembering):
    """Yields the same dict again and again, and changes it in between."""

    def __call__(self, record: Any) -> Iterable[Any]:
        for copy in range(2):
            self.kept["n"] = 10 * record["n"] + copy
            yield self.kept
        self.kept["n"] = -5


class Distinct:
    """Keeps what it has let through, and looks at it later."""

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, record: Any) -> bool:
        fresh = self.last is None or self.last["n"] != record["n"]
        if fresh:
            self.last = record
        return fresh


class Counted(rt.KeyedProcess):
    """Changes a value, sets and yields it, as the docs allow; then uses it up."""

    value = rt.ValueState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        value = self.value.get() or {"n": 0, "all": []}
        value["n"] += 1
        value["all"].append(record["n"])
        self.value.set(value)
        yield value
        spoil(value)


class Forgetful(rt.KeyedProcess):
    """Changes what it got from each kind of state, and does not store it."""

    value, elements, fields = rt.ValueState(), rt.ListState(), rt.MapState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        if self.value.get() is None:
            held = {"n": 1}
            self.value.set(held)
            self.elements.add(held)
            self.elements.extend([held])
            self.fields["x"] = held
            held["n"] = 100
        self.value.get()["n"] += 1
        self.elements.get()[0]["n"] += 1
        self.fields["x"]["n"] += 1
        next(iter(self.fields.values()))["n"] += 1
        found = (self.value.get(), *self.elements.get(), self.fields["x"])
        yield {"n": [held["n"] for held in found]}


class Aside(rt.Process):
    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        ctx.side("aside", record)
        record["n"] += 100
        return [record, record]


class Timed(rt.KeyedProcess):
    held = rt.ValueState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        held = self.held.get() or {"n": 0}
        held["n"] += record["n"]
        self.held.set(held)
        ctx.set_timer(record["n"])
        held["n"] = -100

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        held = self.held.get()
        held["timer"] = timestamp
        yield held
        held["timer"] = -1


def same_list(records: list[Any], kept: list[Any] = []) -> list[Any]:  # noqa: B006
    kept.clear()
    kept.extend(records)
    return kept


def aside(stream: rt.Stream, how: dict[str, Any]) -> rt.Stream:
    process = stream.process(Aside(), **how)
    return process.map(spoil, **how).union(process.side_output("aside").map(spoil, **how))


def fanned_out(stream: rt.Stream, how: dict[str, Any]) -> rt.Stream:
    return stream.map(spoil, **how).union(stream.map(spoil, **how), stream)


def branched(stream: rt.Stream, how: dict[str, Any]) -> rt.Stream:
    """Branches of branches, no link among them: the last of each takes over what there is."""
    first, second = (stream.map(dict, uid=uid, **how) for uid in ("first", "second"))
    spoilt = [each.map(spoil, **how) for each in (first, second, first)]
    return spoilt[0].union(*spoilt[1:], second.map_batches(use_up, **how))


def beside_a_link(stream: rt.Stream, how: dict[str, Any]) -> rt.Stream:
    """The link holds what it gets, while a branch uses it up."""
    return stream.map(spoil, **how).union(stream.rebalance().map(spoil, **how))


def looked_at(stream: rt.Stream, how: dict[str, Any]) -> rt.Stream:
    """Functions that are proven to change nothing look at records that others get, too."""
    kept = stream.filter(lambda record: record["n"] >= 0, **how).map(spoil, **how)
    within = stream.map(lambda record: (0, record), **how).map(spoil_second, **how)
    return kept.union(within, stream.map(spoil, **how))


def spoil_second(pair: Any) -> Any:
    return spoil(pair[1])


def use_up(records: list[Any]) -> list[Any]:
    """A list that was given is one's own as well."""
    seen = [spoil(record) for record in records]
    records.clear()
    return seen


def connected(stream: rt.Stream, how: dict[str, Any]) -> rt.Stream:
    return stream.connect(stream.broadcast()).map(spoil, Remembering(), **how).map(spoil, **how)


TOTALS = [0, 1, 3, 6, 10]
NUMBERS = list(range(COUNT))
SPOILT: dict[str, tuple[Build, list[Any]]] = {
    "reduce": (lambda s, how: s.key_by(one_key).reduce(add, uid="r").map(spoil, **how), TOTALS),
    "reduce in place": (
        lambda s, how: s.key_by(one_key).reduce(add_in_place, uid="r").map(spoil, **how),
        TOTALS,
    ),
    "reduce keeps the record": (
        lambda s, how: s.key_by(one_key).reduce(lambda _, new: new, uid="r").map(spoil, **how),
        NUMBERS,
    ),
    "reduce of tuples with a list": (
        lambda s, how: (
            s.map(lambda row: (0, [row["n"]]))
            .key_by(one_key)
            .reduce(lambda total, pair: (0, total[1] + pair[1]), uid="r")
            .map(spoil_pair, **how)
        ),
        TOTALS,
    ),
    "reduce in place of tuples with a list": (
        lambda s, how: (
            s.map(lambda row: (0, [row["n"]]))
            .key_by(one_key)
            .reduce(extend, uid="r")
            .map(spoil_pair, **how)
        ),
        TOTALS,
    ),
    "reduce that changes what it has returned": (
        lambda s, how: (
            s.map(lambda row: (row["n"],))
            .key_by(one_key)
            .reduce(change_every_other, uid="r")
            .map(lambda row: {"n": row[0]}, **how)
        ),
        TOTALS,
    ),
    "reduce that turns to lists": (
        lambda s, how: (
            s.map(lambda row: (row["n"],))
            .key_by(one_key)
            .reduce(lambda total, row: (total[0] + row[0], [total[0] + row[0]]), uid="r")
            .map(lambda row: {"n": row[0]}, **how)
        ),
        TOTALS,
    ),
    "keyed process": (
        lambda s, how: s.key_by(one_key).process(Counted(), uid="k").map(spoil, **how),
        [1, 2, 3, 4, 5],
    ),
    "state that is not set": (
        lambda s, how: s.key_by(one_key).process(Forgetful(), uid="k"),
        [[1, 1, 1, 1]] * COUNT,
    ),
    "map": (lambda s, how: s.map(Remembering(), **how).map(spoil, **how), NUMBERS),
    "flat_map": (
        lambda s, how: s.flat_map(Again(), **how).map(spoil, **how),
        [10 * n + copy for n in NUMBERS for copy in range(2)],
    ),
    "flat_map of one twice": (
        lambda s, how: s.flat_map(lambda r: [r, r], **how).map(spoil, **how),
        [n for n in NUMBERS for _ in range(2)],
    ),
    "map_batches": (
        lambda s, how: s.map_batches(same_list, **how).map(spoil, **how),
        NUMBERS,
    ),
    "filter": (lambda s, how: s.filter(Distinct(), **how).map(spoil, **how), NUMBERS),
    "side output": (aside, sorted(NUMBERS + 2 * [100 + n for n in NUMBERS])),
    "timers": (
        lambda s, how: s.key_by(one_key).process(Timed(), uid="k").map(spoil, **how),
        [10] * COUNT,
    ),
    "fan-out": (fanned_out, sorted(3 * NUMBERS)),
    "branches": (branched, sorted(4 * NUMBERS)),
    "functions that only look": (looked_at, sorted(3 * NUMBERS)),
    "a branch beside a link": (beside_a_link, sorted(2 * NUMBERS)),
    "connect": (connected, sorted(2 * NUMBERS)),
}
BRANCHED = ["branches", "functions that only look", "a branch beside a link"]
DISORDERED = ["side output", "fan-out", "connect", *BRANCHED]
WAYS = {
    "chained": ({}, rt.Options()),
    "not chained": ({"chain": False}, rt.Options()),
    "frames of one record": (
        {"chain": False},
        rt.Options(buffer_timeout=0, limits=rt.Limits(frame_records=1)),
    ),
    "slices of one record": ({}, rt.Options(limits=rt.Limits(slice_s=1e-9))),
    "long waits": ({"chain": False}, rt.Options(buffer_timeout="1h")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("job", SPOILT)
def test_results_do_not_depend_on_who_holds_a_record(job: str, way: str) -> None:
    build, expected = SPOILT[job]
    how, options = WAYS[way]
    record = {"n": 0}
    records = [record, *({"n": n} for n in range(1, COUNT))]
    env = rt.Environment()
    watermarks = rt.Watermarks.monotonous(timestamp="n")
    source = env.source(rt.CollectionSource(records), uid="s", watermarks=watermarks)
    out = rt.CollectSink()
    build(source, how).sink(out, uid="out")
    env.execute(runner="inline", options=options)
    got = [row["n"] for row in out.rows]
    assert (sorted(got) if job in DISORDERED else got) == expected
    assert record == {"n": 0}


def test_a_source_of_one_record_many_times() -> None:
    env, out = rt.Environment(), rt.CollectSink()
    env.source(rt.CollectionSource([{"n": 1}] * 3)).map(spoil).sink(out)
    env.execute(runner="inline")
    assert out.rows == [{"n": 1}] * 3


class Reusing:
    """Writes into one array of numpy for each batch of columns."""

    def __init__(self) -> None:
        self.array = np.zeros(1, np.int64)

    def __call__(self, table: pa.RecordBatch) -> pa.RecordBatch:
        self.array[:] = table.column("n").to_numpy()
        return pa.RecordBatch.from_arrays([pa.array(self.array)], names=["n"])


@pytest.mark.parametrize("chain", [True, False])
def test_columns_over_an_array_that_is_used_again(chain: bool) -> None:
    env, out = rt.Environment(), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(COUNT)).map(lambda n: {"n": n})
    single = numbers.flat_map(lambda row: [row]).map_batches(Reusing(), "columns", chain=chain)
    single.sink(out, chain=chain)
    options = rt.Options(buffer_timeout="1h", limits=rt.Limits(slice_s=1e-9, frame_records=1))
    env.execute(runner="inline", options=options)
    assert [row["n"] for row in out.rows] == NUMBERS


class Account:
    """A class of the user's own, whose objects have a hash."""

    def __init__(self) -> None:
        self.n = 0


def test_objects_of_any_class() -> None:
    account = Account()

    def count(record: Any) -> Account:
        account.n = record["n"]
        return account

    env, out = rt.Environment(), rt.CollectSink()
    records = rt.CollectionSource([{"n": n} for n in NUMBERS])
    env.source(records).map(count).map(lambda found: found.n).sink(out)
    env.execute(runner="inline")
    assert out.rows == NUMBERS


@pytest.mark.parametrize("job", BRANCHED)
def test_branches_that_get_the_same_records_are_noticed(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "_copy_of", lambda custody, batch: batch)
    with pytest.raises((AssertionError, JobFailedError)):
        test_results_do_not_depend_on_who_holds_a_record(job, "chained")


def test_only_what_passes_a_filter_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    copy_of = fan_out._copy_of

    def counted(custody: Custody, batch: Batch) -> Batch:
        copies.append(len(batch))
        return copy_of(custody, batch)

    monkeypatch.setattr(fan_out, "_copy_of", counted)
    env = rt.Environment()
    records = env.source(rt.CollectionSource([{"n": n} for n in range(100)]))
    outs = [rt.CollectSink(), rt.CollectSink()]
    records.filter(lambda record: record["n"] == 7).sink(outs[0], uid="few")
    records.map(spoil).sink(outs[1], uid="all")
    env.execute(runner="inline")
    assert [out.rows for out in outs] == [[{"n": 7}], [{"n": n} for n in range(100)]]
    assert sum(copies) == 1


PROMISES: dict[str, tuple[Build, str]] = {
    "a record that it was given": (
        lambda s, how: s.map(spoil, name="culprit"),
        "operator culprit .* had been given",
    ),
    "a record that another branch was given, too": (
        lambda s, how: s.map(n_of, name="other").union(s.map(spoil, name="culprit")),
        "operator culprit .* had been given",
    ),
    "what it has returned": (
        lambda s, how: s.map(Remembering(), name="culprit").map(n_of),
        "operator culprit .* had handed over",
    ),
    "what it has yielded": (
        lambda s, how: s.flat_map(Again(), name="culprit").map(n_of),
        "operator culprit .* had handed over",
    ),
    "state": (
        lambda s, how: s.key_by(one_key).process(Forgetful(), name="culprit"),
        "operator culprit .* had (handed over|got from its state)",
    ),
    "a value that it goes on changing": (
        lambda s, how: s.key_by(one_key).reduce(add_in_place, name="culprit"),
        "operator culprit .* had (handed over|got from its state)",
    ),
    "a key": (
        lambda s, how: s.map(dict, name="before").key_by(lambda r: r.pop("n")).map(dict),
        "key or partitioner behind operator before",
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
def test_who_breaks_the_promise_of_sharing_is_named(promise: str) -> None:
    build, message = PROMISES[promise]
    env, out = rt.Environment(), rt.CollectSink()
    source = env.source(rt.CollectionSource([{"n": n} for n in NUMBERS]), uid="s")
    build(source, {}).sink(out, uid="out")
    with pytest.raises(JobFailedError, match=message):
        env.execute(runner="inline", options=rt.Options(detect_mutation=True))


@pytest.mark.parametrize("option", ["share_records", "detect_mutation"])
def test_who_keeps_the_promise_gets_the_same(option: str) -> None:
    env, out = rt.Environment(), rt.CollectSink()
    records = env.source(rt.CollectionSource([{"n": n} for n in NUMBERS]), uid="s")
    totals = records.key_by(one_key).reduce(add, uid="r").map(lambda r: {**r, "twice": 2 * r["n"]})
    totals.filter(lambda r: r["n"] >= 0).flat_map(lambda r: [r]).sink(out, uid="out")
    env.execute(runner="inline", options=rt.Options(**{option: True}))
    assert out.rows == [{"n": n, "twice": 2 * n} for n in TOTALS]


def test_sharing_copies_nothing() -> None:
    env, out = rt.Environment(), rt.CollectSink()
    records = env.source(rt.CollectionSource([{"n": n} for n in NUMBERS]), uid="s")
    records.key_by(one_key).reduce(add, uid="r").map(spoil).sink(out, uid="out")
    env.execute(runner="inline", options=rt.Options(share_records=True))
    assert [row["n"] for row in out.rows] != TOTALS
