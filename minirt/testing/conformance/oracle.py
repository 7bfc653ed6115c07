"""What a random job must put out, computed in plain Python from its plan, and the verdict on its output.

Records are compared as `(path, time)`: in which order they pass stateful operators is left to chance,
and so are their notes. What these must add up to is in `Expected`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirt.testing.conformance.graphs import (
    KEYED,
    Job,
    Path,
    Plan,
    Stage,
    Stamped,
    is_odd,
    keep,
    key_of,
    span_end,
)
from minirt.testing.conformance.sources import event_time, numbered

Records = Counter[Stamped]


@dataclass
class Expected:
    """`exact` holds the multiset at each sink; the rest is how many records each state must have seen."""

    exact: dict[str, Records] = field(default_factory=dict)
    counted: dict[tuple[str, int], Counter[Path]] = field(default_factory=dict)
    """By uid and key: the paths that were numbered."""
    spans: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """By uid, key and time: how many records the timer finds."""
    clocks: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By uid and key: how many records in all."""


def expect(plan: Plan) -> Expected:
    expected = Expected()
    emitted: list[Records] = []
    for number, stage in enumerate(plan.stages):
        uid = f"op{number}"
        consumed = arriving(plan, stage, emitted)
        out = all_records(uid, plan) if stage.kind == "source" else passed_on(stage, uid, consumed)
        emitted.append(out)
        _expect_state(stage, uid, consumed, expected)
        if number in plan.sinks:
            expected.exact[f"out{number}"] = to_sink(stage, consumed, out)
    return expected


def all_records(uid: str, plan: Plan) -> Records:
    """What a source gives out."""
    return Counter(
        (record, event_time(record)) for record in numbered(uid, plan.splits, plan.count)
    )


def arriving(plan: Plan, stage: Stage, emitted: Sequence[Records]) -> list[Records]:
    """What arrives at each input of a stage's operator, of what the stages before have emitted."""
    copies = 2 if stage.kind == "twice" else 1
    if stage.edge == "broadcast" and stage.kind not in (*KEYED, "join"):  # There, keys decide.
        copies *= stage.parallelism[0]
    streams = [Counter({r: n * copies for r, n in emitted[i].items()}) for i in stage.inputs]
    return streams if stage.kind in ("pair", "join") else [sum(streams, Records())]


def passed_on(stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
    """What a stage emits of what it has consumed at each input, once all timers have fired."""
    both = sum(consumed, Records())
    match stage.kind:
        case "map" | "union" | "twice" | "columns":
            return _renamed(both, lambda path: (*path, uid))
        case "filter":
            return Counter({record: n for record, n in both.items() if keep(record[0])})
        case "flat":
            return _renamed(both, lambda path: (*path, 0)) + _renamed(both, lambda path: (*path, 1))
        case "split":
            return Counter({record: n for record, n in both.items() if not is_odd(record[0])})
        case "pair":
            return _renamed(consumed[0], lambda path: (*path, uid, "left")) + _renamed(
                consumed[1], lambda path: (*path, uid, "right")
            )
        case "timers":
            return Counter(fired(uid, key, end) for key, end in spans_of(stage, both))
        case "clock":
            return Records()
    return both


def to_sink(stage: Stage, consumed: Sequence[Records], emitted: Records) -> Records:
    """What a sink gets from a stage; from a "split", both sides."""
    return consumed[0] if stage.kind == "split" else emitted


def spans_of(stage: Stage, records: Records) -> Counter[tuple[int, int]]:
    """How many of the records belong to each key and end of a span."""
    spans: Counter[tuple[int, int]] = Counter()
    for (path, time), n in records.items():
        spans[key_of(path, stage.keys), span_end(time)] += n
    return spans


def fired(uid: str, key: int, end: int) -> Stamped:
    """What the timer of a span emits."""
    return (("timer", uid, key, end), end)


def per_key(stage: Stage, records: Records) -> Counter[int]:
    """How many of the records each key has."""
    counts: Counter[int] = Counter()
    for (path, _), n in records.items():
        counts[key_of(path, stage.keys)] += n
    return counts


def _expect_state(stage: Stage, uid: str, consumed: Sequence[Records], expected: Expected) -> None:
    both = sum(consumed, Records())
    match stage.kind:
        case "count" | "join":
            for (path, _), n in both.items():
                key = (uid, key_of(path, stage.keys))
                expected.counted.setdefault(key, Counter())[path] += n
        case "timers":
            spans = spans_of(stage, both)
            expected.spans.update({(uid, key, end): n for (key, end), n in spans.items()})
        case "clock":
            expected.clocks.update({(uid, key): n for key, n in per_key(stage, both).items()})


def _renamed(records: Records, rename: Callable[[Path], Path]) -> Records:
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
            verdict.wrong.append(f"{uid}: lost {some(lost)}, too many {some(more)}")
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
            verdict.wrong.append(f"{where}: numbers {some(counts)} for {most} records")


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


def some(records: Counter[Any]) -> str:
    """A few of them, for a message."""
    return f"{records.total()} such as {list(records.items())[:3]}" if records else "none"
