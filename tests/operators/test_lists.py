"""Lists of functions without keys: dealt in turn, or to all, when a job is restored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.process import ProcessSpec
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource
from minirt.testing.contracts import Given, OperatorContract
from minirt.testing.contracts.operating import Subtasks

MODES = ["aligned", "unaligned", rt.AlignedWithTimeout("2ms")]
SPLITS, COUNT = 3, 20


class Pairs(rt.Process):
    """Gives records out two by two: one of them waits in the list. Tells as well how many there were."""

    waiting = rt.ListState()
    counts = rt.ListState(redistribution="union")

    def open(self) -> None:
        """Of what was counted by each subtask, the most counts."""
        most: dict[int, int] = {}
        for subtask, count in self.counts.get():
            most[subtask] = max(most.get(subtask, 0), count)
        self.counts.set(sorted(most.items()))

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        counts = dict(self.counts.get())
        counts[ctx.subtask] = counts.get(ctx.subtask, 0) + 1
        self.counts.set(sorted(counts.items()))
        self.waiting.add(record)
        if len(self.waiting.get()) > 1:
            first, *others = self.waiting.get()
            self.waiting.set(others[1:])
            yield (first, others[0])


def job(sink: TransactionalSink, parallelism: int) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=8)
    numbers = env.source(NumberedSource("n", SPLITS, COUNT), uid="numbers")
    numbers.rebalance().process(Pairs(), uid="pairs").sink(sink, uid="out")
    return env


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_no_element_is_lost_or_doubled_by_crashes_and_rescales(mode: Any) -> None:
    for seed in range(8):
        sink = TransactionalSink()
        checkpointing = rt.Checkpointing("simulated://", interval="10ms", mode=mode)
        forms = [job(sink, width) for width in (3, 2, 1)]
        simulate(forms[0], seed=seed, checkpointing=checkpointing, rescaled=forms[1:]).check()
        found = Counter(record for pair in sink.rows for record in pair)
        assert not found or max(found.values()) == 1, f"seed {seed}"
        # One at most waits in each subtask, also of those that were.
        assert found.total() >= SPLITS * COUNT - 3, f"seed {seed}"


class Known(rt.Process):
    """Tells what each subtask begins with."""

    dealt = rt.ListState()
    known = rt.ListState(redistribution="union")

    def open(self) -> None:
        self.begun = self.dealt.get(), self.known.get()

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        self.dealt.add(record)
        self.known.add(record)
        yield (record, *self.begun)


def begun(spec: ProcessSpec, old: int, new: int) -> list[Any]:
    """What each of `new` subtasks begins with, where `old` ones have listed 0 to 9 in turn."""
    first = Subtasks(spec, (), old)
    for number in range(10):
        first.operators[number % old].process(Rows([number]), 0)
    second = Subtasks(spec, (), new, restore=first.snapshot("x"))
    for operator in second.operators:
        operator.process(Rows([100]), 0)
    return [result[1:] for _, result, _ in second.results]


def test_elements_are_dealt_in_turn_and_a_union_goes_to_all() -> None:
    found = begun(ProcessSpec(Known()), 3, 2)
    everything = [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert found == [(everything[0::2], everything), (everything[1::2], everything)]


class Listing(rt.Process):
    """Gives records on as they are; what it lists is each of them once."""

    listed = rt.ListState()

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        self.listed.add(record)
        numbers = [each["n"] for each in self.listed.get()]
        assert len(set(numbers)) == len(numbers)
        assert numbers[-1] == record["n"]
        yield record


class TestLists(OperatorContract):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return ProcessSpec(Listing())

    @pytest.fixture
    def events(self) -> list[Any]:
        return [Given([{"n": n} for n in range(first, first + 3)]) for first in range(0, 15, 3)]


class Value(rt.Process):
    last = rt.ValueState()

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        return ()


class Expires(Value):
    last = rt.ListState(ttl="1h")  # type: ignore[assignment]


class Keyed(rt.KeyedProcess):
    last = rt.ListState(redistribution="union")

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        return ()


def test_what_cannot_be_dealt_is_refused() -> None:
    numbers = rt.Environment().source(rt.CollectionSource([1]), uid="numbers")
    with pytest.raises(rt.ConfigurationError, match="'last', but a Process has lists only"):
        numbers.process(Value())
    with pytest.raises(rt.ConfigurationError, match="a ttl needs keys"):
        numbers.process(Expires())
    with pytest.raises(rt.ConfigurationError, match="redistribution has no effect"):
        numbers.key_by(lambda n: n).process(Keyed())
    with pytest.raises(rt.ConfigurationError, match="'round_robin' or 'union', not 'all'"):
        rt.ListState(redistribution="all")  # type: ignore[arg-type]
