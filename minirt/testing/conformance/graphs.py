"""Random jobs: a plan is drawn, and built as one job at several parallelisms.

A record is `(path, time, notes)`: the path says where it came from and which way it took; notes are what
stateful operators found when it passed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow.compute as pc

import minirt as rt
from minirt.testing import TransactionalSink
from minirt.testing.conformance.sources import OUT_OF_ORDER_MS, NumberedSource, event_time

Path = tuple[Any, ...]
Stamped = tuple[Path, int]
Record = tuple[Path, int, tuple[Any, ...]]

BUCKET_MS = 16
LAID = "-laid"
"""Behind the uid of an operator on columns: the one that lays them out for it."""
EDGES = ("plain", "rebalance", "rescale", "broadcast", "forward", "custom", "impure")
SINGLE = ("map", "filter", "flat", "batches", "split", "columns")
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


def span_end(time: int) -> int:
    """The last millisecond of the span of event time that `time` lies in."""
    return time // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1


def lay_out(record: Record, keys: int) -> dict[str, Any]:
    """The fields in which a record travels in columns."""
    return {"key": key_of(record[0], keys), "record": repr(record)}


def pick_up(fields: Mapping[str, Any]) -> Record:
    """The record that was laid out, with a note in its path of the operator that it came through."""
    path, time, notes = ast.literal_eval(fields["record"])
    return ((*path, fields["via"]) if "via" in fields else path, time, notes)


def choose(key: int, parallelism: int) -> int:
    return (key * 5 + 1) % parallelism


class Turns:
    """An impure partitioner: it deals in turn, and each copy of it begins elsewhere."""

    copies = 0
    """Since a job was last written, so that the same seed does the same again."""

    def __init__(self) -> None:
        Turns.copies = self._turn = 0

    def __setstate__(self, state: object) -> None:
        Turns.copies += 1
        self._turn = Turns.copies

    def __call__(self, key: int, parallelism: int) -> int:
        self._turn += 1
        return self._turn % parallelism


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
        self.seen.add(path)
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
        end = span_end(record[1])
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
    if kind == "columns" and edge == "broadcast":  # What is in flight before it is not copied yet.
        edge = "plain"
    if edge == "forward" and all(len(set(drawn[i].parallelism)) == 1 for i in inputs):
        parallelism = drawn[inputs[0]].parallelism
    if edge == "broadcast":  # How often records come depends on it.
        parallelism = parallelism[:1] * forms
    before = drawn[inputs[0]].parallelism
    always_or_never_equal = len({a == b for a, b in zip(before, parallelism, strict=True)}) == 1
    # A link that is chained in another form of the job could not get its in-flight records back.
    chain = random.random() < 0.7 and always_or_never_equal
    return Stage(kind, inputs, edge, chain, random.randint(1, 5), parallelism)


def timer_plan(random: Random) -> Plan:
    """Records to timers of event time and to timers of the clock, at one parallelism after another."""
    forms = random.randint(1, 3)

    def stage(kind: str, *inputs: int) -> Stage:
        parallelism = tuple(random.randint(1, 3) for _ in range(forms))
        return Stage(kind, inputs, "plain", True, 4, parallelism)

    return Plan((stage("source"), stage("timers", 0), stage("clock", 0)), 2, 14, forms)


def impure_plan(random: Random) -> Plan:
    """Records through an impure partitioner and then counted by key, at one parallelism after another."""
    forms = random.randint(2, 3)

    def stage(kind: str, edge: str, *inputs: int) -> Stage:
        parallelism = tuple(random.randint(1, 3) for _ in range(forms))
        return Stage(kind, inputs, edge, False, 4, parallelism)

    stages = (stage("source", "plain"), stage("map", "impure", 0), stage("count", "plain", 1))
    return Plan(stages, 2, 14, forms)


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
    settings: dict[str, Any] = {"uid": uid, "parallelism": width, "chain": stage.chain}
    if stage.kind == "columns":
        [before] = stage.inputs
        return _add_columns(streams[before], stage, plan.stages[before], form, settings)
    inputs = [_dealt(streams[i], stage, plan.stages[i], form) for i in stage.inputs]
    first = inputs[0]
    keyed = [stream.key_by(_key_function(stage.keys)) for stream in inputs]
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


def _add_columns(
    stream: rt.Stream, stage: Stage, source: Stage, form: int, settings: Mapping[str, Any]
) -> rt.Stream:
    """An operator on columns; they are laid out before they are dealt to it, by a key of one of them."""
    uid, keys = settings["uid"], stage.keys
    laid = stream.map(
        lambda r: lay_out(r, keys), uid=f"{uid}{LAID}", parallelism=source.parallelism[form]
    ).select("record", "key", uid=f"{uid}-select", parallelism=source.parallelism[form])
    if stage.edge == "plain":
        dealt: rt.Stream = laid.key_by("key")
    elif stage.edge in ("custom", "impure"):
        function = choose if stage.edge == "custom" else Turns()
        dealt = laid.partition_custom(function, "key", pure=stage.edge == "custom")
    else:
        dealt = _dealt(laid, stage, source, form)
    marked = dealt.with_column("via", pc.scalar(uid), **settings)
    back = {"parallelism": settings["parallelism"]}
    kept = marked.filter(pc.field("key") >= 0, uid=f"{uid}-filter", **back)
    return kept.map(pick_up, uid=f"{uid}-back", **back)


def _key_function(keys: int) -> Callable[[Record], int]:
    return lambda record: key_of(record[0], keys)


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
        case "impure":
            return stream.partition_custom(Turns(), lambda r: key_of(r[0], 7), pure=False)
    return stream
