"""The contract of operators notices operators that are wrong, each in one way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from minirt.data.batch import Batch, Rows
from minirt.operators import (
    Form,
    KeyedOperator,
    Operator,
    OperatorContext,
    OperatorSpec,
    StateDealing,
    TopNSpec,
    WindowSpec,
    check_stored_keys,
)
from minirt.operators.top_n import TopNOperator
from minirt.state.array_table import ArrayTable
from minirt.state.key_index import KeyIndex
from minirt.state.sections import Section
from minirt.testing.contracts import Event, OperatorContract
from tests.contracts.test_operators import AGGREGATES, EVENTS, RUNS, WINDOWS


@dataclass(frozen=True)
class Histories(OperatorSpec):
    """The numbers of each key so far, in a list; `operator` is what runs."""

    kind: ClassVar = "histories"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.ROWS

    operator: type[HistoriesOperator]

    def build(self, ctx: OperatorContext) -> Operator:
        return self.operator(ctx)


class HistoriesOperator(KeyedOperator):
    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        self._seen = self.state.table("seen")
        self._key_of = ctx.keys[0].on_rows()

    def process(self, batch: Batch, input_index: int) -> None:
        rows = batch.rows()
        keys = [self._key_of(record) for record in rows.records]
        self.check(keys, rows.records)
        self.state.change(keys)
        results = []
        for key, record in zip(keys, rows.records, strict=True):
            self._seen[key] = [*self._seen.get(key, ()), record["n"]]
            results.append({"k": key, "seen": self.given_out(self._seen[key])})
        self.ctx.emit(Rows(results, rows.timestamps))

    def check(self, keys: Sequence[Any], records: Sequence[Any]) -> None:
        check_stored_keys(keys, records, self.ctx.label)

    def given_out(self, seen: list[int]) -> list[int]:
        return [*seen]


class TakesAnyKey(HistoriesOperator):
    """Does not look at keys: who has sent the records did."""

    def check(self, keys: Sequence[Any], records: Sequence[Any]) -> None: ...


class Forgets(HistoriesOperator):
    def snapshot(self) -> Mapping[str, Section]:
        return {}


class TakesAll(HistoriesOperator):
    """Takes the state of all key groups."""

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        super().restore(sections, exact=True)


class TakesAllIfMany(TakesAll):
    """Where a job has few subtasks, each gets what it should."""

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        HistoriesOperator.restore(self, sections, exact=exact or self.ctx.parallelism > 3)


class Shares(HistoriesOperator):
    """Gives out the list that it goes on holding."""

    def given_out(self, seen: list[int]) -> list[int]:
        return seen


class NeedsNoBase(HistoriesOperator):
    """Stores what has changed only, and does not say what that builds on."""

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {}


class SeesLater(HistoriesOperator):
    """What changes behind a snapshot shows in it."""

    def snapshot(self) -> Mapping[str, Section]:
        def late() -> bytes:
            [section] = super(SeesLater, self).snapshot().values()
            return section if isinstance(section, bytes) else section()

        return {"state/seen": late}


class ByBatch(HistoriesOperator):
    """Gives out the last record of each batch only."""

    def process(self, batch: Batch, input_index: int) -> None:
        super().process(batch.rows().slice(len(batch) - 1, len(batch)), input_index)


class FailsToClose(HistoriesOperator):
    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        self._open = 0

    def process(self, batch: Batch, input_index: int) -> None:
        self._open += 1
        super().process(batch, input_index)
        self._open -= 1

    def close(self) -> None:
        assert not self._open, "it is at work"


@dataclass(frozen=True)
class Held(Histories):
    """Holds what cannot be pickled."""

    held: Any = None


class _Contract(OperatorContract):
    keys: ClassVar = ("k",)

    def spec(self) -> OperatorSpec:  # It is given to each test.
        raise NotImplementedError

    def events(self) -> Sequence[Event]:
        raise NotImplementedError


TESTS = [name for name in dir(OperatorContract) if name.startswith("test_")]


def failures(spec: OperatorSpec, events: Sequence[Event] = EVENTS) -> set[str]:
    """The tests of the contract that fail."""
    contract, failed = _Contract(), set()
    given = {"spec": spec, "events": events}
    arguments: dict[str, Sequence[Mapping[str, Any]]] = {
        "test_restored_from_a_snapshot_it_goes_on_as_if_nothing_had_been": [{"columns": False}],
        "test_at_another_parallelism_nothing_is_lost_or_doubled": [
            {"before": before, "after": after} for before, after in ((2, 1), (2, 3))
        ],
        "test_rescaled_to_and_fro_nothing_is_lost_or_doubled": [
            {"first": first, "second": second} for first, second in ((1, 2), (3, 5))
        ],
    }
    for name in TESTS:
        test: Callable[..., None] = getattr(contract, name)
        for more in arguments.get(name, [{}]):
            wanted = inspect.signature(test).parameters
            own = {fixture: value for fixture, value in given.items() if fixture in wanted}
            try:
                test(**own, **more)
            except pytest.skip.Exception:
                pass  # It would skip the test that asks as well.
            except (Exception, pytest.fail.Exception):
                failed.add(name)
    return failed


def test_a_right_operator_passes() -> None:
    assert failures(Histories(HistoriesOperator)) == set()


@pytest.mark.parametrize(
    ("operator", "noticed"),
    [
        (Forgets, "test_restored_from_a_snapshot_it_goes_on_as_if_nothing_had_been"),
        (TakesAnyKey, "test_a_key_that_no_other_subtask_could_find_is_refused"),
        (TakesAll, "test_at_another_parallelism_nothing_is_lost_or_doubled"),
        (TakesAll, "test_rescaled_to_and_fro_nothing_is_lost_or_doubled"),
        (TakesAllIfMany, "test_rescaled_to_and_fro_nothing_is_lost_or_doubled"),
        (Shares, "test_what_was_emitted_is_its_receivers"),
        (NeedsNoBase, "test_snapshots_that_build_on_older_ones_restore"),
        (SeesLater, "test_restored_from_a_snapshot_it_goes_on_as_if_nothing_had_been"),
        (ByBatch, "test_cuts_of_batches_do_not_matter"),
        (FailsToClose, "test_it_can_be_closed_after_a_failure"),
    ],
)
def test_a_wrong_operator_is_noticed(operator: type[HistoriesOperator], noticed: str) -> None:
    assert noticed in failures(Histories(operator))


def test_a_spec_that_cannot_be_pickled_is_noticed() -> None:
    assert "test_a_pickled_spec_does_the_same" in failures(Held(HistoriesOperator, Lock()))


SAME_ORDER = "test_what_it_promises_to_repeat_comes_in_the_same_order"


@pytest.mark.parametrize("window", ["tumbling", "sessions", "counted"])
def test_results_in_the_order_in_which_state_is_kept_are_noticed(
    window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrayTable, "key_order", lambda table, slots: np.arange(len(slots)))
    assert SAME_ORDER in failures(WindowSpec(AGGREGATES, WINDOWS[window]))


def test_ranks_in_the_order_in_which_records_are_held_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slots(operator: TopNOperator, table: pa.RecordBatch, hashes: Any, held: int) -> Any:
        keys = [table.column(name) for name in operator.ctx.keys[0].columns]
        return KeyIndex([array.type for array in keys]).slots(keys, hashes)

    spec = TopNSpec(3, (("r", "descending"), ("s", "ascending")))
    assert SAME_ORDER not in failures(spec, RUNS)
    monkeypatch.setattr(TopNOperator, "_slots", slots)
    assert SAME_ORDER in failures(spec, RUNS)
