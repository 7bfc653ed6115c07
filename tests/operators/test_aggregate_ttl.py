"""Aggregates of keys that expire, against a plain account of what is left of each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.data.batch import Batch
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.operators import aggregate as module
from minirt.operators.aggregate import AggregateSpec, TtlAggregateOperator
from minirt.operators.common.base import OperatorContext
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state import array_moves, array_slots, segments
from minirt.state.array_layout import entries_of
from minirt.state.expiry import BUCKETS
from minirt.state.sections import section_bytes
from minirt.testing.contracts.operating import Given, as_columns, as_rows

TTL_S = 64.0
AGGREGATES = (rt.Count("count"), rt.Sum("n", "sum"), rt.First("n", "first"))


class Totals:
    """An aggregate of one subtask, whose clock stands still until it is set."""

    def __init__(
        self, emit: Any = "updates", restore: Mapping[str, bytes] | None = None, at: float = 1_000.0
    ):
        self.at = at
        self.out: list[tuple[Any, ...]] = []
        ctx = OperatorContext(
            label="totals",
            uid="totals",
            subtask=0,
            parallelism=1,
            max_parallelism=8,
            generation=1,
            now=lambda: self.at,
            allow_pickle=False,
            emit=self._keep,
            side=lambda tag: self._keep,
            monotonic=lambda: self.at,
            keys=(KeySelector(("k",)),),
        )
        operator = AggregateSpec(AGGREGATES, emit, int(TTL_S * 1000)).build(ctx)
        assert isinstance(operator, TtlAggregateOperator)
        self.operator = operator
        if restore is not None:
            self.operator.restore(restore, exact=True)
        self.operator.open()

    def feed(self, *records: tuple[Any, int], columns: bool = True) -> None:
        given = Given([{"k": key, "n": n} for key, n in records])
        batch: Batch = as_columns(given) if columns else as_rows(given)
        self.operator.process(batch, 0)

    def pass_time(self, seconds: float, between: Callable[[], None] | None = None) -> None:
        """Everything that is due happens, and what `between` does after each turn of it."""
        self.at += seconds
        while (due := self.operator.due_at) is not None and due <= self.at:
            for _ in self.operator.on_due() or ():
                pass
            if between is not None:
                between()

    def stored(self) -> dict[str, bytes]:
        return {name: section_bytes(data) for name, data in self.operator.snapshot().items()}

    def taken(self) -> list[tuple[Any, ...]]:
        out, self.out = self.out, []
        return out

    @property
    def keys(self) -> int:
        return len(self.operator._table)

    @property
    def slots(self) -> int:
        return self.operator._table.used

    def _keep(self, batch: Batch) -> None:
        self.out += [tuple(record.values()) for record in batch.rows().records]


def test_a_key_that_has_expired_begins_anew_though_it_is_still_there() -> None:
    totals = Totals()
    totals.feed(("a", 5), ("b", 1))
    totals.at += TTL_S - 0.001
    totals.feed(("a", 6))
    totals.at += 0.001
    assert totals.keys == 2, "no sweep has come by yet"
    totals.taken()
    totals.feed(("a", 7), ("b", 2), ("b", 3))
    assert sorted(totals.taken()) == [("a", 3, 18, 5), ("b", 2, 5, 2)]


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("seed", range(20))
def test_random_records_add_up_as_in_a_plain_account(
    seed: int, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_KEYS", 3)
    random, totals = Random(seed), Totals()
    account: dict[Any, tuple[float, list[int]]] = {}
    for _ in range(80):
        batch = [(random.choice([*range(12), None]), random.randint(-9, 9)) for _ in range(5)]
        for key, n in batch:
            seen, values = account.get(key, (totals.at, []))
            values = values if totals.at - seen < TTL_S else []
            account[key] = (totals.at, [*values, n])
        totals.feed(*batch, columns=columns)
        expected = {
            (key, len(account[key][1]), sum(account[key][1]), account[key][1][0])
            for key, _ in batch
        }
        assert {*totals.taken()} == expected
        if random.random() < 0.1:
            totals = Totals(restore=totals.stored(), at=totals.at)
        # By whole numbers, as the account counts in floats; some steps without a sweep.
        step = random.choice((0, 1, 8, 40, 70))
        if random.random() < 0.5:
            totals.pass_time(step)
        else:
            totals.at += step


def test_slots_of_expired_keys_are_given_back_and_no_longer_stored() -> None:
    totals = Totals()
    totals.feed(*((key, key) for key in range(3000)))
    full = len(totals.stored()["state/value"])
    totals.at += TTL_S / 2
    totals.feed(*((key, key) for key in range(10)))
    totals.pass_time(TTL_S / 2 + TTL_S / BUCKETS)
    assert (totals.keys, totals.slots) == (10, 10)
    sections = totals.stored()
    assert max(map(len, sections.values())) < full / 50
    totals.taken()
    restored = Totals(restore=sections, at=totals.at)
    restored.feed((3, 1), (2000, 1))
    assert sorted(restored.taken()) == [(3, 3, 7, 3), (2000, 1, 1, 1)]
    restored.pass_time(2 * TTL_S)
    assert restored.keys == 0
    assert restored.operator.due_at is None


@pytest.mark.parametrize("incremental", [False, True])
def test_what_has_expired_is_not_stored_even_before_a_sweep_comes_by(
    incremental: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if incremental:
        monkeypatch.setattr(segments, "STRETCH_MIN", 1)
    totals = Totals()
    totals.feed(("old", 1), ("new", 2), *((f"{n}", n) for n in range(200)))
    sections = [totals.stored()["state/value"]]
    totals.operator.on_stored("first")
    totals.at += TTL_S - 1
    totals.feed(("new", 3), *((f"{n}", n) for n in range(150)))
    totals.at += 1
    sections.append(totals.stored()["state/value"])
    assert totals.keys == 202, "no sweep has come by yet"
    assert bool(totals.operator.builds_on()["state/value"]) == incremental
    written = {key for keys, _ in entries_of(sections[1]) for key in keys}
    assert written == {"new", *(f"{n}" for n in range(150))}
    restored = Totals(at=totals.at)
    for section in sections if incremental else sections[1:]:
        restored.operator.restore({"state/value": section}, exact=True)
    restored.feed(("old", 4), ("new", 5))
    assert restored.taken() == [("old", 1, 4, 4), ("new", 3, 10, 2)]


@pytest.mark.parametrize("emit", ["end", 1000.0])
def test_what_has_expired_is_stored_until_its_result_is_given_out(emit: Any) -> None:
    totals = Totals(emit)
    totals.feed(("a", 5))
    totals.at += TTL_S
    restored = Totals(emit, restore=totals.stored(), at=totals.at)
    restored.pass_time(TTL_S)
    assert restored.taken() == [("a", 1, 5, 5)]


def test_time_goes_on_while_the_job_is_down() -> None:
    totals = Totals()
    totals.feed(("a", 5))
    restored = Totals(restore=totals.stored(), at=totals.at + TTL_S)
    restored.feed(("a", 6))
    assert restored.taken() == [("a", 1, 6, 6)]


def test_a_clock_that_was_set_back_expires_nothing_twice_as_late() -> None:
    totals = Totals()
    totals.feed(("a", 5))
    restored = Totals(restore=totals.stored(), at=10.0)
    restored.at += TTL_S
    restored.feed(("a", 6))
    assert restored.taken() == [("a", 1, 6, 6)]


def test_records_have_their_turn_between_the_pieces_of_a_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHUNK_KEYS", 20)
    totals, turns = Totals(), 0
    totals.feed(*((key, key) for key in range(3000)))
    totals.taken()

    def feed() -> None:
        nonlocal turns
        turns += 1
        totals.feed((2999, 1), (10_000 + turns, 1))

    totals.pass_time(2 * TTL_S, feed)
    assert turns > 100
    assert totals.keys == 1 + turns
    assert max(count for key, count, *_ in totals.taken() if key == 2999) == turns


@pytest.mark.parametrize("seed", range(20))
def test_slots_move_while_records_and_snapshots_come(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that change, come and go while the others are copied, against a plain account."""
    for where, name in (
        (module, "CHUNK_KEYS"),
        (array_moves, "PIECE_SLOTS"),
        (array_slots, "_GONE_MIN"),
    ):
        monkeypatch.setattr(where, name, 7)
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)
    random, totals = Random(seed), Totals()
    account = {key: [key] for key in range(150)}
    totals.feed(*((key, key) for key in account))
    totals.at += TTL_S / 2
    lasting = random.sample(sorted(account), 60)
    totals.feed(*((key, 1) for key in lasting))
    account = {key: [key, 1] for key in lasting}
    storing: list[Any] = []
    moved = 0

    def between() -> None:
        nonlocal moved
        moved += totals.operator._table._move is not None
        records = [
            (random.choice([*lasting, *range(150, 160)]), random.randint(1, 9)) for _ in range(3)
        ]
        for key, n in records:
            account.setdefault(key, []).append(n)
        totals.feed(*records)
        if random.random() < 0.1:
            storing[:] = [totals.operator.snapshot()["state/value"], repr(sorted(account.items()))]
        elif storing and random.random() < 0.3:
            assert repr(sorted(shown(storing[0]).items())) == storing[1]
            storing.clear()

    def shown(section: Any) -> dict[Any, list[int]]:
        restored = Totals(restore={"state/value": section_bytes(section)}, at=totals.at)
        table = restored.operator._table
        rows = table.results(table.live())[0].to_pylist()
        return {row["k"]: account_of(row) for row in rows}

    def account_of(row: dict[str, Any]) -> list[int]:
        values = account[row["k"]][: row["count"]]
        assert (row["sum"], row["first"]) == (sum(values), values[0])
        return values

    totals.pass_time(TTL_S / 2 + TTL_S / BUCKETS, between)
    assert moved > 3
    assert shown(totals.operator.snapshot()["state/value"]) == account
    assert totals.slots == totals.keys == len(account)


@pytest.mark.parametrize("by", ["sweep", "record"])
@pytest.mark.parametrize("emit", ["end", 1000.0])
def test_a_result_that_is_held_back_is_given_out_before_its_key_is_forgotten(
    emit: Any, by: str
) -> None:
    totals = Totals(emit)
    totals.feed(("a", 5), ("a", 6))
    if by == "sweep":
        totals.pass_time(2 * TTL_S)
    else:
        totals.at += TTL_S
        totals.feed(("a", 7))
    assert totals.taken() == [("a", 2, 11, 5)]
    for _ in totals.operator.on_watermark(MAX_WATERMARK):
        pass
    assert totals.taken() == ([] if by == "sweep" else [("a", 1, 7, 7)])


def test_a_ttl_of_nothing_is_refused() -> None:
    env = rt.Environment()
    keyed = env.source(rt.CollectionSource([{"k": 1}])).key_by("k")
    with pytest.raises(ConfigurationError, match=r"ttl must be at least 1ms"):
        keyed.aggregate(rt.Count(), ttl=0).sink(rt.DiscardSink())
    with pytest.raises(ConfigurationError, match=r"aggregate.*ttl"):
        keyed.aggregate(rt.Count(), ttl="-1s")
