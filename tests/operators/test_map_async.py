"""`map_async`: every answer leaves once, in order where that was asked for, whatever crashes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.graph.execution import ExecutionGraph
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import StateDealing
from minirt.operators.map_async import MapAsyncOperator, MapAsyncSpec
from minirt.testing import Faults, TransactionalSink, simulate
from minirt.testing.contracts import Given
from minirt.testing.contracts.operating import Subtasks
from tests.campaigns import modes, runs, seeds

COUNT = 60


async def square(number: int) -> int:
    """The answer comes after a while that differs from record to record."""
    await asyncio.sleep(number * 7 % 11 / 1000)
    return number * number


SQUARES = Counter(number * number for number in range(COUNT))


class InOrder(rt.KeyedProcess):
    """Answers of a key come in the order of the records; none comes behind its watermark."""

    last = rt.ValueState(-1)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        late = ctx.watermark is not None and ctx.timestamp is not None
        yield record, record > self.last.value, late and ctx.timestamp <= ctx.watermark
        self.last.value = record


def job(sink: rt.Sink, parallelism: int, *, keyed: bool, ordered: bool) -> rt.Environment:
    env = rt.Environment("asked", parallelism=parallelism, max_parallelism=16)
    watermarks = rt.Watermarks.monotonous(timestamp=lambda n: n)
    numbers = env.source(rt.SequenceSource(COUNT, splits=3), uid="numbers", watermarks=watermarks)
    dealt = numbers.key_by(lambda n: n % 3) if keyed else numbers.rebalance()
    asked = dealt.map_async(square, capacity=5, ordered=ordered, timeout=None, uid="asked")
    by_key = asked.key_by(lambda n: round(n**0.5) % 3)
    by_key.process(InOrder(), uid="order").sink(sink, uid="out")
    return env


def simulated(mode: str, seed: int, *, keyed: bool, ordered: bool) -> list[Any]:
    sink = TransactionalSink()
    forms = [job(sink, parallelism, keyed=keyed, ordered=ordered) for parallelism in (2, 3, 1)]
    simulate(
        forms[0],
        seed=seed,
        rescaled=forms[1:],
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
    ).check()
    return sink.rows


@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_every_answer_leaves_once_whatever_crashes(mode: str) -> None:
    for seed in range(runs(4)):
        rows = simulated(mode, seed, keyed=seed % 4 < 2, ordered=bool(seed % 2))
        assert Counter(row[0] for row in rows) == SQUARES, seed
        assert not any(late for *_, late in rows), f"{seed}: a watermark has passed a record"


def test_as_they_come_answers_do_change_their_order() -> None:
    rows = simulated("unaligned", 0, keyed=True, ordered=False)
    assert not all(in_order for _, in_order, _ in rows)


def test_requests_that_a_snapshot_forgets_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what was sent is taken for done."""
    monkeypatch.setattr(MapAsyncOperator, "snapshot", lambda self: {})
    lost = (
        Counter(row[0] for row in simulated("unaligned", seed, keyed=True, ordered=True)) != SQUARES
        for seed in seeds(40)
    )
    assert any(lost)


def test_a_watermark_that_is_not_held_passes_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: event time goes on at once."""
    monkeypatch.setattr(MapAsyncOperator, "holds_time", False)
    monkeypatch.setattr(MapAsyncOperator, "_signal", lambda self, signal: None)
    rows = [
        row for seed in range(5) for row in simulated("aligned", seed, keyed=True, ordered=True)
    ]
    assert any(late for *_, late in rows)


class Numbers:
    """Runs a function over a few numbers, inline."""

    def __init__(self, function: Any, count: int = 10, **options: Any) -> None:
        env = rt.Environment("numbers", parallelism=1)
        self.main, self.timed_out = rt.CollectSink(), rt.CollectSink()
        stream = env.source(rt.SequenceSource(count), uid="numbers").map_async(
            function, uid="asked", **options
        )
        stream.sink(self.main, uid="main")
        if options.get("on_timeout") == "side":
            stream.side_output("timeout").sink(self.timed_out, uid="late")
        self.env = env

    def run(self) -> Numbers:
        self.env.execute(runner="inline", restart=rt.Restart.none())
        return self


def test_answers_come_in_order_unless_told_otherwise() -> None:
    async def slow_first(number: int) -> int:
        await asyncio.sleep(0.2 if number == 0 else 0)
        return number

    assert Numbers(slow_first).run().main.rows == list(range(10))
    assert Numbers(slow_first, ordered=False).run().main.rows == [*range(1, 10), 0]


UNDER_WAY: Counter[str] = Counter()


async def counting(number: int) -> int:
    UNDER_WAY["now"] += 1
    UNDER_WAY["most"] = max(UNDER_WAY["most"], UNDER_WAY["now"])
    await asyncio.sleep(0.001)
    UNDER_WAY["now"] -= 1
    return number


def test_no_more_requests_are_under_way_than_the_capacity_allows() -> None:
    UNDER_WAY.clear()
    assert Numbers(counting, 50, capacity=7).run().main.rows == list(range(50))
    assert UNDER_WAY["most"] == 7


async def hangs_at_3(number: int) -> int:
    await asyncio.sleep(3600 if number == 3 else 0)
    return number


def test_a_request_without_answer_fails_the_job_with_its_record() -> None:
    with pytest.raises(rt.MinirtError, match=r"asked.* failed on record 3\n.*within 0.05 s"):
        Numbers(hangs_at_3, timeout="50ms").run()


@pytest.mark.parametrize("ordered", [True, False])
def test_or_its_record_goes_to_the_side_output(ordered: bool) -> None:
    numbers = Numbers(hangs_at_3, timeout="50ms", on_timeout="side", ordered=ordered).run()
    assert numbers.timed_out.rows == [3]
    assert sorted(numbers.main.rows) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_a_function_that_will_not_be_cancelled_times_out_all_the_same() -> None:
    async def stubborn(number: int) -> int:
        while number == 3:
            try:
                await asyncio.sleep(0.3)
                break
            except asyncio.CancelledError:
                continue
        return number

    numbers = Numbers(stubborn, timeout="50ms", on_timeout="side").run()
    assert numbers.timed_out.rows == [3]
    assert 3 not in numbers.main.rows


def test_an_error_names_operator_and_record() -> None:
    async def broken(number: int) -> int:
        raise ValueError("no answer")

    with pytest.raises(rt.MinirtError, match=r"(?s)asked.* failed on record 0\n.*no answer"):
        Numbers(broken).run()


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_errors_of_other_kinds_are_no_less_heard(error: BaseException) -> None:
    async def broken(number: int) -> int:
        raise error

    with pytest.raises(rt.MinirtError, match="failed on record 0"):
        Numbers(broken, 1).run()


class Flaky:
    """Fails so many times for each record."""

    def __init__(self, times: int) -> None:
        self.left: dict[int, int] = {}
        self._times = times

    async def __call__(self, record: list[int]) -> int:
        number = record.pop()
        left = self.left.setdefault(number, self._times)
        self.left[number] -= 1
        if left > 0:
            raise ConnectionError("try again")
        return number


def test_what_fails_is_sent_again_with_the_same_record() -> None:
    def lists(times: int, retry: rt.Retry) -> list[int]:
        env, out = rt.Environment("flaky", parallelism=1), rt.CollectSink()
        numbers = env.source(rt.CollectionSource([[n] for n in range(5)]), uid="numbers")
        numbers.map_async(Flaky(times), retry=retry, uid="asked").sink(out, uid="out")
        env.execute(runner="inline", restart=rt.Restart.none())
        return out.rows

    retry = rt.Retry.fixed_delay(2, "1ms", on=ConnectionError)
    assert lists(2, retry) == [0, 1, 2, 3, 4]
    with pytest.raises(rt.MinirtError, match="try again"):
        lists(3, retry)
    with pytest.raises(rt.MinirtError, match="try again"):
        lists(1, rt.Retry.fixed_delay(2, "1ms", on=ValueError))


def test_the_delays_of_a_retry() -> None:
    retry = rt.Retry.exponential_delay(5, "100ms", "1s", 3.0)
    longest = [max(retry.delay_s(n, number) for number in range(100)) for n in (1, 2, 3, 2000)]
    assert longest == pytest.approx([0.1, 0.3, 0.9, 1.0], rel=0.02)
    assert all(0.05 <= retry.delay_s(1, number) <= 0.1 for number in range(100))
    assert [retry.again(n, OSError()) for n in (1, 5, 6)] == [True, True, False]


class Client(rt.AsyncFunction):
    log: list[str] = []

    async def open(self) -> None:
        self.log.append("open")

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.log.append("close")

    async def __call__(self, record: int) -> int:
        self.log.append("ask")
        return record


def test_a_client_is_opened_and_closed_in_the_event_loop() -> None:
    Client.log.clear()
    assert Numbers(Client(), 2).run().main.rows == [0, 1]
    assert Client.log == ["open", "ask", "ask", "close"]


def test_a_client_that_cannot_be_opened_fails_the_job() -> None:
    class Closed(Client):
        async def open(self) -> None:
            raise OSError("nobody listens")

    with pytest.raises(rt.MinirtError, match=r"(?s)asked.* could not be opened.*nobody listens"):
        Numbers(Closed()).run()


@pytest.mark.parametrize(
    ("ordered", "keyed", "in_order", "after", "refused"),
    [
        (True, False, True, 3, "declare ordered=False"),
        (True, False, False, 3, None),
        (True, False, True, 2, None),
        (True, False, True, 1, None),
        (False, False, True, 3, None),
        (True, True, True, 3, None),
        (True, True, True, 2, "taken without this key_by"),
    ],
)
def test_a_restore_that_would_lose_the_order_of_requests_is_refused(
    ordered: bool, keyed: bool, in_order: bool, after: int, refused: str | None
) -> None:
    before = Subtasks(MapAsyncSpec(square, capacity=8, ordered=ordered), (), 2)
    before.feed(Given([*range(8)]))
    stored = before.snapshot("one")
    spec = MapAsyncSpec(square, capacity=8, ordered=ordered, keyed=keyed)
    restored = Subtasks(spec, (KeySelector(function=lambda n: n),) if keyed else (), after)

    def restore() -> list[int]:
        for operator in restored.operators:
            operator.ctx = replace(operator.ctx, in_order=in_order)
            for place, each in enumerate(stored):
                if after != 2 or place == operator.ctx.subtask:
                    operator.restore(each.sections, exact=after == 2)
            operator.open()
        return sorted(result for _, result, _ in restored.end())

    if refused is None:
        assert restore() == [number * number for number in range(8)]
    else:
        with pytest.raises(rt.ConfigurationError, match=f"operator operator: .*{refused}"):
            restore()


RUN = 40
"""How many numbers a split has, in jobs that are rescaled again and again."""


async def slow_square(number: int) -> int:
    """Many checkpoints are taken until the answer comes."""
    await asyncio.sleep(number * 7 % 11 / 100)
    return number * number


class Passing(rt.KeyedProcess):
    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[int]:
        yield record


def straight_job(
    sink: rt.Sink, parallelism: int, *, keyed: bool = False, edge: str = "chained"
) -> rt.Environment:
    """The records of a split have one key, and come to map_async in the subtask of that key."""
    env = rt.Environment("asked", parallelism=parallelism, max_parallelism=16)
    numbers = env.source(rt.SequenceSource(3 * RUN, splits=3), uid="numbers")
    passed = numbers.key_by(_split_of).process(Passing(), uid="passed")
    if keyed:
        dealt: rt.Stream[int] = passed.key_by(_split_of)
    else:
        dealt = {"chained": passed, "forward": passed.forward(), "rebalance": passed.rebalance()}[
            edge
        ]
    chain = edge == "chained" and not keyed
    asked = dealt.map_async(slow_square, timeout=None, uid="asked", chain=chain)
    straight = asked.map(lambda n: n, uid="straight", chain=False)
    by_key = straight.key_by(lambda n: _split_of(round(n**0.5)))
    by_key.process(InOrder(), uid="order").sink(sink, uid="out")
    return env


def _split_of(number: int) -> int:
    return number // RUN


@dataclass
class Refusals:
    """Lets restores fail that would have lost the order of requests."""

    count: int = 0

    def may_refuse(self, error: Exception | None) -> bool:
        refused = isinstance(error, rt.ConfigurationError) and "put key_by before" in str(error)
        self.count += refused
        return refused


def rescaled(seed: int, mode: str, **form: Any) -> tuple[list[Any], int]:
    """The rows of a job that is rescaled to `form`, and how often that was refused."""
    sink, refusals = TransactionalSink(), Refusals()
    others = [straight_job(sink, parallelism, **form) for parallelism in (3, 4, 1)]
    simulate(
        straight_job(sink, 2, edge=form.get("edge", "chained")),
        seed=seed,
        rescaled=others,
        checkpointing=rt.Checkpointing("simulated://", interval="5ms", mode=mode),
        faults=Faults(coordinator_crashes=8),
        may_refuse=refusals.may_refuse,
    ).check()
    assert sorted(row[0] for row in sink.rows) == [n * n for n in range(3 * RUN)], seed
    return sink.rows, refusals.count


@pytest.mark.parametrize("edge", ["chained", "forward"])
def test_answers_of_a_key_are_in_order_whatever_the_parallelism(edge: str) -> None:
    refused = 0
    for seed in range(40):
        rows, count = rescaled(seed, ["aligned", "unaligned"][seed % 2], edge=edge)
        assert all(in_order for _, in_order, _ in rows), seed
        refused += count
        if refused and seed > 1:
            return
    pytest.fail("no restore was refused, so no order was at stake")


def test_key_by_before_map_async_is_a_way_out() -> None:
    """Requests that nobody dealt by key go to the subtask of their key, with none lost."""
    for seed in range(3):
        rows, _ = rescaled(seed, ["aligned", "unaligned"][seed % 2], keyed=True)
        assert all(in_order for _, in_order, _ in rows), seed


def test_requests_that_are_spread_in_silence_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: nobody looks whether order can be lost."""
    monkeypatch.setattr(ExecutionGraph, "in_order", frozenset())
    disordered = (
        not all(row[1] for row in rescaled(seed, "unaligned")[0]) for seed in seeds(20, first=8)
    )
    assert any(disordered)


def test_requests_that_only_some_subtasks_look_for_are_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted bug: only old subtasks of one's own key groups are read, whoever dealt the requests."""

    def dealt(spec: MapAsyncSpec) -> StateDealing:
        return StateDealing.BY_KEY_GROUP if spec.keyed else StateDealing.BY_OPERATOR

    monkeypatch.setattr(MapAsyncSpec, "state", property(dealt))

    def run() -> None:
        for seed in seeds(20, first=8):
            rescaled(seed, "unaligned", keyed=True, edge="rebalance")

    with pytest.raises(AssertionError, match=r"assert \["):
        run()


@pytest.mark.processes
@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_a_job_goes_on_from_requests_that_were_under_way(tmp_path: Path, mode: str) -> None:
    marker = tmp_path / "failed"

    async def failing_once(number: int) -> int:
        await asyncio.sleep(0.01 * (number % 5))
        if number == COUNT // 2 and not marker.exists():
            marker.touch()
            raise ValueError("no answer")
        return number * number

    env, sink = rt.Environment("asked", parallelism=2), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(COUNT, splits=2), uid="numbers").rebalance()
    numbers.map_async(failing_once, capacity=8, uid="asked").sink(sink, uid="out")
    result: Any = env.execute(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="20ms", mode=mode),
        restart=rt.Restart.fixed_delay(1, 0.01),
    )
    assert result.restarts == 1
    assert Counter(sink.rows) == SQUARES


@pytest.mark.processes
@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_no_barrier_waits_for_a_request(tmp_path: Path, mode: str) -> None:
    """All input was read, and no answer comes for long: checkpoints complete all the same."""
    release = tmp_path / "release"

    async def until_released(number: int) -> int:
        while not release.exists():
            await asyncio.sleep(0.01)
        return number

    class Releasing(rt.JobObserver):
        completed = 0

        def on_checkpoint(self, report: rt.CheckpointReport) -> None:
            self.completed += report.status is rt.CheckpointStatus.COMPLETED
            if self.completed == 3:
                release.touch()

    env, sink = rt.Environment("asked", parallelism=2), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(10, splits=2), uid="numbers").rebalance()
    numbers.map_async(until_released, timeout="2min", uid="asked").sink(sink, uid="out")
    checkpointing = rt.Checkpointing(tmp_path / "checkpoints", interval="20ms", mode=mode)
    began = time.monotonic()
    env.execute(checkpointing=checkpointing, observer=Releasing())
    assert sorted(sink.rows) == list(range(10))
    assert time.monotonic() - began < 60


REFUSED: dict[str, tuple[Callable[[rt.Stream], Any], str]] = {
    "a plain function": (lambda s: s.map_async(len), "map_async calls a coroutine function"),
    "a class": (lambda s: s.map_async(Client), r"give an instance, Client\(...\), not the class"),
    "capacity": (
        lambda s: s.map_async(square, capacity=0),
        "capacity must be a whole number above 0",
    ),
    "no time": (lambda s: s.map_async(square, timeout=0), "timeout must be above 0"),
    "side without timeout": (
        lambda s: s.map_async(square, timeout=None, on_timeout="side"),
        "has no effect without a timeout",
    ),
    "on_timeout": (lambda s: s.map_async(square, on_timeout="drop"), 'must be "fail" or "side"'),
    "ordered": (lambda s: s.map_async(square, ordered=1), "ordered is True or False"),
    "retry": (lambda s: s.map_async(square, retry=3), "retry: expected Retry, got 3"),
    "side output": (
        lambda s: s.map_async(square).side_output("timeout"),
        'with on_timeout="side"',
    ),
    "another side output": (
        lambda s: s.map_async(square, on_timeout="side").side_output("late"),
        "one side output, 'timeout', and no 'late'",
    ),
    "attempts": (lambda s: rt.Retry.fixed_delay(0), "attempts must be a whole number above 0"),
    "errors": (lambda s: rt.Retry.fixed_delay(on=KeyboardInterrupt), "on is a class of exceptions"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_work_is_refused_where_it_is_written_down(wrong: str) -> None:
    call, message = REFUSED[wrong]
    stream = rt.Environment("refused").source(rt.SequenceSource(1), uid="numbers")
    with pytest.raises(rt.ConfigurationError, match=message):
        call(stream)
