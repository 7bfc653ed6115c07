"""Random jobs, and what they must put out: the oracle computes it in plain Python.

A record is `(path, time, notes)`: the path says where it came from and which way it took; notes are what
stateful operators found when it passed. From the same drawn plan, `build` makes the job and `expect`
the multiset of `(path, time)` at each sink.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import minirt as rt
from minirt.testing import TransactionalSink
from minirt.testing.conformance.sources import OUT_OF_ORDER_MS, NumberedSource, event_time, numbered

Path = tuple[Any, ...]
Stamped = tuple[Path, int]
Record = tuple[Path, int, tuple[Any, ...]]

BUCKET_MS = 16
EDGES = ("plain", "rebalance", "rescale", "broadcast", "forward", "custom")
SINGLE = ("map", "filter", "flat", "batches", "split")
KEYED = ("count", "timers", "clock")
PAIRS = ("union", "twice", "pair", "join")


def key_of(path: Path, keys: int) -> int:
    return sum(part for part in path if isinstance(part, int)) % keys


# The functions of the jobs.


def stamp(record: tuple[str, int, int]) -> Record:
    return (record, event_time(record), ())


def keep(path: Path) -> bool:
    return key_of(path, 4) != 1


def is_odd(path: Path) -> bool:
    return key_of(path, 2) == 1


def choose(key: int, parallelism: int) -> int:
    return (key * 5 + 1) % parallelism


class Splitter(rt.Process):
    """Odd records to the side output; nothing may come after a watermark that promised it was over."""

    def process(self, record: Record, ctx: rt.ProcessContext) -> Iterable[Record]:
        assert ctx.timestamp == record[1]
        assert ctx.watermark is None or ctx.watermark < record[1], "a watermark passed a record"
        if is_odd(record[0]):
            ctx.side("odd", record)
        else:
            yield record


class _Counting:
    """Numbers the records of a key; three kinds of state must agree about them."""

    count = rt.ValueState(0)
    seen = rt.ListState()
    by_source = rt.MapState()

    def number(self, record: Record, uid: str, key: int) -> Record:
        path, time, notes = record
        self.count.value += 1
        self.seen.add(path[1])
        self.by_source[path[0]] = self.by_source.get(path[0], 0) + 1
        count = self.count.value
        assert len(self.seen.get()) == count == sum(self.by_source.values())
        return (path, time, (*notes, ("count", uid, key, count, path)))


class Count(_Counting, rt.KeyedProcess):
    def __init__(self, uid: str) -> None:
        self.uid = uid

    def process(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        yield self.number(record, self.uid, ctx.key)


class Join(_Counting, rt.KeyedCoProcess):
    def __init__(self, uid: str) -> None:
        self.uid = uid

    def process_left(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        yield self.number(record, self.uid, ctx.key)

    def process_right(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        yield self.number(record, self.uid, ctx.key)


class Timers(rt.KeyedProcess):
    """Collects the records of a key and a span of event time, and counts them when it is over."""

    spans = rt.MapState()

    def __init__(self, uid: str) -> None:
        self.uid = uid

    def process(self, record: Record, ctx: rt.KeyedContext) -> None:
        end = record[1] // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
        self.spans[end] = self.spans.get(end, 0) + 1
        ctx.set_timer(end)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Record]:
        count = self.spans.pop(timestamp)
        note = ("span", self.uid, ctx.key, timestamp, count)
        yield (("timer", self.uid, ctx.key, timestamp), timestamp, (note,))


class Clock(rt.KeyedProcess):
    """Counts the records of a key until the clock says so, and again."""

    waiting = rt.ValueState(0)

    def __init__(self, uid: str, delay_ms: int) -> None:
        self.uid = uid
        self.delay_ms = delay_ms

    def process(self, record: Record, ctx: rt.KeyedContext) -> None:
        if not self.waiting.value:
            ctx.set_processing_timer(ctx.processing_time + self.delay_ms)
        self.waiting.value += 1

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Record]:
        count, self.waiting.value = self.waiting.value, 0
        yield (("clock", self.uid, ctx.key), 0, (("clock", self.uid, ctx.key, count),))


# Plans.


@dataclass(frozen=True)
class Stage:
    """One operator. `inputs` are indexes of earlier stages; of a "split", "odd" takes the other side."""

    kind: str
    inputs: tuple[int, ...]
    edge: str
    chain: bool
    keys: int
    parallelism: tuple[int, ...]
    """In each form of the job."""


@dataclass(frozen=True)
class Plan:
    stages: tuple[Stage, ...]
    splits: int
    count: int
    forms: int
    watermark_bound_ms: int = OUT_OF_ORDER_MS

    @property
    def sinks(self) -> list[int]:
        used = {i for stage in self.stages for i in stage.inputs}
        return [i for i in range(len(self.stages)) if i not in used]


def draw_plan(random: Random, *, stages: int = 4, records: int = 16) -> Plan:
    """A random job: a source or two, then stages that take any stream there is."""
    forms = random.choice((1, 1, 2, 3))
    splits = random.randint(1, 4)
    drawn: list[Stage] = []
    for number in range(random.randint(1, stages) + random.randint(1, 2)):
        open_ends = [i for i, stage in enumerate(drawn) if stage.kind != "clock"]
        drawn.append(_draw_stage(random, drawn, open_ends, forms, is_source=number == 0))
    return Plan(tuple(drawn), splits, max(1, records // splits), forms)


def _draw_stage(
    random: Random, drawn: Sequence[Stage], open_ends: Sequence[int], forms: int, *, is_source: bool
) -> Stage:
    widths = (1, 1, 2, 2, 3, 3, 4, 5)
    parallelism = tuple(random.choice(widths) for _ in range(forms))
    if is_source or random.random() < 0.1:
        return Stage("source", (), "plain", True, 1, parallelism)
    kind = random.choice((*SINGLE, *KEYED, *KEYED, *PAIRS))
    wanted = 2 if kind in ("union", "pair", "join") else 1
    # Newer stages are likelier, so that graphs grow long as well as wide.
    inputs = tuple(
        open_ends[-1 - int(random.random() ** 2 * len(open_ends))] for _ in range(wanted)
    )
    edge = random.choice(EDGES)
    if edge == "forward" and all(len(set(drawn[i].parallelism)) == 1 for i in inputs):
        parallelism = drawn[inputs[0]].parallelism
    if edge == "broadcast":  # How often records come depends on it.
        parallelism = parallelism[:1] * forms
    return Stage(kind, inputs, edge, random.random() < 0.7, random.randint(1, 5), parallelism)


def timer_plan(random: Random) -> Plan:
    """Records to timers of event time and to timers of the clock, at one parallelism after another."""
    forms = random.randint(1, 3)

    def stage(kind: str, *inputs: int) -> Stage:
        parallelism = tuple(random.randint(1, 3) for _ in range(forms))
        return Stage(kind, inputs, "plain", True, 4, parallelism)

    return Plan((stage("source"), stage("timers", 0), stage("clock", 0)), 2, 14, forms)


@dataclass
class Job:
    """A plan as jobs, one for each form, all with the same sinks."""

    plan: Plan
    sinks: dict[str, TransactionalSink] = field(default_factory=dict)
    forms: list[rt.Environment] = field(default_factory=list)


def build(plan: Plan) -> Job:
    job = Job(plan, {f"out{i}": TransactionalSink() for i in plan.sinks})
    job.forms = [_build_form(plan, form, job.sinks) for form in range(plan.forms)]
    return job


def _build_form(plan: Plan, form: int, sinks: dict[str, TransactionalSink]) -> rt.Environment:
    env = rt.Environment(max_parallelism=16)
    streams: list[rt.Stream] = []
    for number, stage in enumerate(plan.stages):
        streams.append(_add(env, plan, stage, number, form, streams))
        if number in plan.sinks:
            out = streams[-1]
            if stage.kind == "split":
                out = out.union(out.side_output("odd"))
            out.sink(sinks[f"out{number}"], uid=f"out{number}", parallelism=stage.parallelism[form])
    return env


def _add(
    env: rt.Environment,
    plan: Plan,
    stage: Stage,
    number: int,
    form: int,
    streams: Sequence[rt.Stream],
) -> rt.Stream:
    uid, width = f"op{number}", stage.parallelism[form]
    if stage.kind == "source":
        source = NumberedSource(uid, plan.splits, plan.count)
        marks = rt.Watermarks.bounded(plan.watermark_bound_ms / 1000, timestamp=event_time)
        return env.source(source, uid=uid, watermarks=marks, parallelism=width).map(
            stamp, uid=f"{uid}-stamp", parallelism=width
        )
    inputs = [_dealt(streams[i], stage, plan.stages[i], form) for i in stage.inputs]
    keys, first = stage.keys, inputs[0]
    settings: dict[str, Any] = {"uid": uid, "parallelism": width, "chain": stage.chain}
    keyed = [stream.key_by(lambda r, keys=keys: key_of(r[0], keys)) for stream in inputs]
    match stage.kind:
        case "map":
            return first.map(lambda r: ((*r[0], uid), r[1], r[2]), **settings)
        case "filter":
            return first.filter(lambda r: keep(r[0]), **settings)
        case "flat":
            return first.flat_map(
                lambda r: [((*r[0], copy), r[1], r[2]) for copy in range(2)], **settings
            )
        case "batches":
            return first.map_batches(lambda rows: [row for row in rows], **settings)  # noqa: C416
        case "split":
            return first.process(Splitter(), **settings)
        case "count":
            return keyed[0].process(Count(uid), **settings)
        case "timers":
            return keyed[0].process(Timers(uid), **settings)
        case "clock":
            return keyed[0].process(Clock(uid, 3 * number), **settings)
        case "union":
            return first.union(inputs[1]).map(lambda r: ((*r[0], uid), r[1], r[2]), **settings)
        case "twice":
            return first.union(first).map(lambda r: ((*r[0], uid), r[1], r[2]), **settings)
        case "pair":
            return first.connect(inputs[1]).map(
                lambda r: ((*r[0], uid, "left"), r[1], r[2]),
                lambda r: ((*r[0], uid, "right"), r[1], r[2]),
                **settings,
            )
        case "join":
            return keyed[0].connect(keyed[1]).process(Join(uid), **settings)
    raise AssertionError(stage.kind)


def _dealt(stream: rt.Stream, stage: Stage, source: Stage, form: int) -> rt.Stream:
    match stage.edge:
        case "rebalance":
            return stream.rebalance()
        case "rescale":
            return stream.rescale()
        case "broadcast":
            return stream.broadcast()
        case "forward" if source.parallelism[form] == stage.parallelism[form]:
            return stream.forward()
        case "custom":
            return stream.partition_custom(choose, lambda r: key_of(r[0], 7))
    return stream


# What must come out.


@dataclass
class Expected:
    """`exact` holds the multiset at each sink; the rest is how many records each state must have seen."""

    exact: dict[str, Counter[Stamped]] = field(default_factory=dict)
    counted: dict[tuple[str, int], Counter[Path]] = field(default_factory=dict)
    """By uid and key: the paths that were numbered."""
    spans: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """By uid, key and time: how many records the timer finds."""
    clocks: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By uid and key: how many records in all."""


def expect(plan: Plan) -> Expected:
    expected = Expected()
    outputs: list[Counter[Stamped]] = []
    for number, stage in enumerate(plan.stages):
        out = _run_stage(plan, stage, f"op{number}", outputs, expected)
        outputs.append(out)
        if number in plan.sinks:
            if stage.kind == "split":  # Both sides go to the sink.
                out = _inputs(stage, outputs)[0]
            expected.exact[f"out{number}"] = out
    return expected


def _inputs(stage: Stage, outputs: Sequence[Counter[Stamped]]) -> list[Counter[Stamped]]:
    """What arrives: a broadcast edge brings everything to each subtask, unless keys decide."""
    copies = 1
    if stage.edge == "broadcast" and stage.kind not in ("count", "timers", "clock", "join"):
        copies = stage.parallelism[0]
    return [Counter({record: n * copies for record, n in outputs[i].items()}) for i in stage.inputs]


def _run_stage(
    plan: Plan, stage: Stage, uid: str, outputs: Sequence[Counter[Stamped]], expected: Expected
) -> Counter[Stamped]:
    if stage.kind == "source":
        return Counter(
            (record, event_time(record)) for record in numbered(uid, plan.splits, plan.count)
        )
    arriving = _inputs(stage, outputs)
    both = sum(arriving, Counter[Stamped]())
    match stage.kind:
        case "map" | "union":
            return _renamed(both, lambda path: (*path, uid))
        case "twice":
            return _renamed(both + both, lambda path: (*path, uid))
        case "filter":
            return Counter({record: n for record, n in both.items() if keep(record[0])})
        case "flat":
            return _renamed(both, lambda path: (*path, 0)) + _renamed(both, lambda path: (*path, 1))
        case "split":
            return Counter({record: n for record, n in both.items() if not is_odd(record[0])})
        case "pair":
            return _renamed(arriving[0], lambda path: (*path, uid, "left")) + _renamed(
                arriving[1], lambda path: (*path, uid, "right")
            )
        case "count" | "join":
            for (path, _), n in both.items():
                key = (uid, key_of(path, stage.keys))
                expected.counted.setdefault(key, Counter())[path] += n
            return both
        case "timers":
            spans: Counter[tuple[int, int]] = Counter()
            for (path, time), n in both.items():
                end = time // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
                spans[key_of(path, stage.keys), end] += n
            expected.spans.update({(uid, key, end): n for (key, end), n in spans.items()})
            return Counter({(("timer", uid, key, end), end): 1 for key, end in spans})
        case "clock":
            for (path, _), n in both.items():
                expected.clocks[uid, key_of(path, stage.keys)] += n
            return Counter()
    return both


def _renamed(records: Counter[Stamped], rename: Any) -> Counter[Stamped]:
    return Counter({(rename(path), time): n for (path, time), n in records.items()})


# The verdict.


@dataclass
class Verdict:
    lost: int = 0
    duplicated: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(job: Job, *, exactly_once: bool) -> Verdict:
    """Compare what was committed with what must be."""
    expected, verdict = expect(job.plan), Verdict()
    notes: set[Any] = set()
    clocks: Counter[tuple[str, int]] = Counter()
    spans: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for uid, sink in job.sinks.items():
        rows = sink.rows
        got = Counter((path, time) for path, time, _ in rows if path[0] != "clock")
        lost, more = expected.exact[uid] - got, got - expected.exact[uid]
        verdict.lost += lost.total()
        verdict.duplicated += more.total()
        if lost or (more and exactly_once) or not got.keys() <= expected.exact[uid].keys():
            verdict.wrong.append(f"{uid}: lost {_some(lost)}, too many {_some(more)}")
        for _, _, found in rows:
            for note in found:
                if note[0] == "clock":
                    clocks[note[1:3]] += note[3]
                elif note[0] == "span":
                    spans[note[1:4]].append(note[4])
                else:
                    notes.add(note)
    _judge_counts(expected, notes, verdict, exactly_once=exactly_once)
    _judge_timers(expected, spans, clocks, verdict, exactly_once=exactly_once)
    return verdict


def _judge_counts(
    expected: Expected, notes: set[Any], verdict: Verdict, *, exactly_once: bool
) -> None:
    """The records of a key were numbered 1, 2, 3 ...; some may have been filtered out since."""
    found: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for _, uid, key, count, _ in notes:
        found[uid, key][count] += 1
    for where, counts in found.items():
        most = expected.counted[where].total() if where in expected.counted else 0
        if exactly_once and (max(counts.values()) > 1 or max(counts) > most):
            verdict.wrong.append(f"{where}: numbers {_some(counts)} for {most} records")


def _judge_timers(
    expected: Expected,
    spans: dict[tuple[str, int, int], list[int]],
    clocks: Counter[tuple[str, int]],
    verdict: Verdict,
    *,
    exactly_once: bool,
) -> None:
    for where, counts in spans.items():
        wanted = expected.spans[where]
        if (exactly_once and set(counts) != {wanted}) or sum(counts) < wanted:
            verdict.wrong.append(f"timer {where} found {counts} records, not {wanted}")
    for place, wanted in expected.clocks.items():
        verdict.lost += max(0, wanted - clocks[place])
        verdict.duplicated += max(0, clocks[place] - wanted)
        if clocks[place] < wanted or (exactly_once and clocks[place] > wanted):
            verdict.wrong.append(f"clock {place} counted {clocks[place]} records, not {wanted}")


def _some(records: Counter[Any]) -> str:
    return f"{records.total()} such as {list(records.items())[:3]}" if records else "none"
