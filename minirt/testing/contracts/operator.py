"""What every operator must keep to; the tests of an operator inherit these."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from minirt import by_value
from minirt.data.batch import Batch
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.state import segments
from minirt.testing.contracts.operating import (
    Advance,
    Event,
    Given,
    Result,
    Stored,
    Subtasks,
)
from minirt.testing.contracts.restoring import restore_in_any_order


class OperatorContract(ABC):
    """Tests over `spec`, an operator with inputs, and `events`: what it is given, of several keys.

    `keys` has the key of each input, the name of a column or a function, None for one without key; none at
    all for an operator without keys. Records that are dicts are given in columns as well.
    """

    keys: ClassVar[tuple[str | Callable[[Any], Any] | None, ...]] = ()
    cuts_matter: ClassVar[bool] = False
    """Whether results may depend on where batches are cut; `settled` can still say what may not."""

    @pytest.fixture
    @abstractmethod
    def spec(self) -> OperatorSpec: ...

    @pytest.fixture
    @abstractmethod
    def events(self) -> Sequence[Event]: ...

    def settled(self, results: Sequence[Result]) -> Any:
        """What of the results must always be the same; their order among keys is not."""
        return Counter(map(repr, results))

    def test_a_spec_says_its_facts(self, spec: OperatorSpec) -> None:
        type(spec).check_facts()
        assert spec.inputs >= 1, "a source has a contract of its own"
        assert spec.takes in (None, *Form)
        assert isinstance(spec.state, StateDealing)
        assert spec.default_name
        assert len(self.keys) in (0, spec.inputs)
        keys = self._selectors() or (None,) * spec.inputs
        spec.check(Site("operator", ("stream",) * spec.inputs, keys, (None,) * spec.inputs))
        spec.validate("operator")

    def test_a_pickled_spec_does_the_same(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        copy = pickle.loads(by_value.dumps(spec))
        assert type(copy) is type(spec)
        assert (copy.kind, copy.default_name, copy.details) == (
            *(spec.kind, spec.default_name),
            spec.details,
        )
        assert self._outcome(copy, events) == self._outcome(spec, events) != self.settled([])

    def test_cuts_of_batches_do_not_matter(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        if self.cuts_matter:
            pytest.skip("it says that they do")
        assert self._outcome(spec, [*_cut(events)]) == self._outcome(spec, events)

    def test_rows_and_columns_give_the_same(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        if not _are_dicts(events):
            pytest.skip("its records cannot be laid out in columns")
        assert self._outcome(spec, events, columns=True) == self._outcome(spec, events)

    def test_what_was_emitted_is_its_receivers(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        """The receiver changes all that it gets: the operator must not see it."""
        kept = Subtasks(spec, self._selectors(), spoil=False)
        assert self._outcome(spec, events) == self.settled(_fed(kept, events).end())

    @pytest.mark.parametrize("columns", [False, True])
    def test_restored_from_a_snapshot_it_goes_on_as_if_nothing_had_been(
        self, spec: OperatorSpec, events: Sequence[Event], columns: bool
    ) -> None:
        columns = columns and _are_dicts(events)
        wanted = self._outcome(spec, events, columns=columns)
        first = Subtasks(spec, self._selectors())
        taken = [([*first.results], first.begin_snapshot())]
        for event in events:
            first.feed(event, columns=columns)
            taken.append(([*first.results], first.begin_snapshot()))
        # What has come behind a snapshot must not show in it, though all are stored late.
        for place, (seen, store) in enumerate(taken):
            second = Subtasks(spec, self._selectors(), restore=store("late"))
            results = [*seen, *_fed(second, events[place:], columns=columns).end()]
            assert self.settled(results) == wanted, f"restored behind {place} batches"

    @pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3)])
    def test_at_another_parallelism_nothing_is_lost_or_doubled(
        self, spec: OperatorSpec, events: Sequence[Event], before: int, after: int
    ) -> None:
        if spec.state is not StateDealing.BY_KEY_GROUP:
            pytest.skip("its state is not dealt by key")
        wanted = self._outcome(spec, events)
        first = Subtasks(spec, self._selectors(), before)
        for place, event in enumerate(events):
            stored = first.begin_snapshot()("one")
            second = Subtasks(spec, self._selectors(), after, restore=stored)
            second.feed(event)
            seen, stored = [*first.results, *second.results], second.snapshot("two")
            # State that subtasks hold of keys that are not theirs is old, and replaces what is newer: in
            # whatever order they are restored, and one has one order.
            for turned in (stored, stored[::-1])[:after]:
                third = Subtasks(spec, self._selectors(), before, restore=turned)
                results = [*seen, *_fed(third, events[place + 1 :]).end()]
                assert self.settled(results) == wanted, f"rescaled around batch {place}"
            first.feed(event)

    @pytest.mark.parametrize(("first", "second"), [(1, 2), (3, 5)])
    def test_rescaled_to_and_fro_nothing_is_lost_or_doubled(
        self, spec: OperatorSpec, events: Sequence[Event], first: int, second: int
    ) -> None:
        if spec.state is not StateDealing.BY_KEY_GROUP:
            pytest.skip("its state is not dealt by key")
        wanted = self._outcome(spec, events)
        # Behind every batch: in one direction, then in the other one and restored in the other order.
        for ways, order in (((first, second), 1), ((second, first), -1)):
            results: list[Result] = []
            stored: Sequence[Stored] = ()
            for place, event in enumerate(events):
                subtasks = Subtasks(
                    spec, self._selectors(), ways[place % 2], restore=stored[::order]
                )
                subtasks.feed(event)
                results += subtasks.results
                stored = subtasks.snapshot(f"{place}")
            last = Subtasks(spec, self._selectors(), ways[len(events) % 2], restore=stored[::order])
            assert self.settled([*results, *last.end()]) == wanted, f"rescaled from {ways[0]}"

    def test_a_key_that_no_other_subtask_could_find_is_refused(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        """Who deals records lets 1.0 pass once 1 is known: state stored by it could not be rescaled."""
        if spec.state is not StateDealing.BY_KEY_GROUP or not self.keys:
            pytest.skip("it stores nothing by key")
        key: Any = 1
        selectors = tuple(
            KeySelector(columns=(own,))
            if isinstance(own, str)
            else None
            if own is None
            else KeySelector(function=lambda _: key)
            for own in self.keys
        )
        given = [event for event in events if isinstance(event, Given)]
        subtasks = Subtasks(spec, selectors)
        _fed(subtasks, [self._with_key(event, key) for event in given])
        key = 1.0
        with pytest.raises(UserCodeError):
            _fed(subtasks, [self._with_key(event, key) for event in given])

    def test_snapshots_that_build_on_older_ones_restore(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        wanted = self._outcome(spec, events)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                segments, "STRETCH_MIN", 2
            )  # Else so little state is stored anew each time.
            subtasks = Subtasks(spec, self._selectors(), 2)
            for place, event in enumerate(events):
                subtasks.feed(event)
                stored = subtasks.snapshot(f"{place}")
                restored = Subtasks(spec, self._selectors(), 2, restore=stored)
                results = [*subtasks.results, *_fed(restored, events[place + 1 :]).end()]
                assert self.settled(results) == wanted, f"restored behind batch {place}"

    def test_what_it_promises_to_repeat_comes_in_the_same_order(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        """Restored from a snapshot, it is told once more how far event time was.

        State is in any order then, as the files of an incremental snapshot may have it.
        """
        if not spec.repeats_batches:
            pytest.skip("it promises nothing")
        wanted = _by_output(_fed(self._repeating(spec), events).end())
        if spec.repeats:
            cut = _fed(self._repeating(spec), [*_cut(events)])
            assert _by_output(cut.end()) == wanted
        with pytest.MonkeyPatch.context() as patch:
            restore_in_any_order(patch)
            first = self._repeating(spec)
            passed: list[Event] = []
            for place, event in enumerate(events):
                seen, stored = [*first.results], first.snapshot(f"{place}")
                second = self._repeating(spec, stored)
                results = [*seen, *_fed(second, [*passed, *events[place:]]).end()]
                assert _by_output(results) == wanted, f"restored behind {place} batches"
                first.feed(event)
                passed = [event] if isinstance(event, Advance) else passed

    def test_it_can_be_closed_after_a_failure(
        self, spec: OperatorSpec, events: Sequence[Event]
    ) -> None:
        def fail(tag: str, batch: Batch) -> None:
            raise ZeroDivisionError("nobody takes it")

        subtasks = Subtasks(spec, self._selectors(), emit=fail)
        with pytest.raises(Exception, match="nobody takes it"):
            _fed(subtasks, events).end()
        for operator in subtasks.operators:
            operator.close()

    def _repeating(self, spec: OperatorSpec, restore: Sequence[Stored] = ()) -> Subtasks:
        return Subtasks(spec, self._selectors(), restore=restore, repeats=True)

    def _with_key(self, given: Given, key: Any) -> Given:
        """The same records with another value in the column of their key."""
        own = self.keys[given.input]
        if not isinstance(own, str):
            return given
        return replace(given, records=[{**record, own: key} for record in given.records])

    def _selectors(self) -> tuple[KeySelector | None, ...]:
        return tuple(
            KeySelector(columns=(key,))
            if isinstance(key, str)
            else None
            if key is None
            else KeySelector(function=key)
            for key in self.keys
        )

    def _outcome(
        self, spec: OperatorSpec, events: Sequence[Event], *, columns: bool = False
    ) -> Any:
        subtasks = Subtasks(spec, self._selectors())
        return self.settled(_fed(subtasks, events, columns=columns).end())


def _by_output(results: Sequence[Result]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for tag, record, time in results:
        found.setdefault(tag, []).append(repr((record, time)))
    return found


def _are_dicts(events: Sequence[Event]) -> bool:
    return all(isinstance(r, dict) for e in events if isinstance(e, Given) for r in e.records)


def _fed(subtasks: Subtasks, events: Sequence[Event], *, columns: bool = False) -> Subtasks:
    for event in events:
        subtasks.feed(event, columns=columns)
    return subtasks


def _cut(events: Sequence[Event]) -> Iterator[Event]:
    """The same, record by record."""
    for event in events:
        if isinstance(event, Advance):
            yield event
            continue
        for place, record in enumerate(event.records):
            times = None if event.times is None else [event.times[place]]
            yield Given([record], times, event.input)
