"""What a random job must put out, computed in plain Python from its plan, and the verdict on its output.

Each kind of stage tells what it makes of records, and what its notes must be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minirt.testing.conformance.edges import EDGES
from minirt.testing.conformance.graphs import Job
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.stages import kind_of
from minirt.testing.conformance.stages.base import (
    Note,
    Output,
    Records,
    Verdict,
    key_of,
    some,
)
from minirt.testing.conformance.stages.source import all_records


@dataclass
class Expected:
    """What there must be when all has ended."""

    exact: dict[str, Records] = field(default_factory=dict)
    """What each sink gets; nothing of a sink whose records are left to chance."""
    consumed: list[list[Records]] = field(default_factory=list)
    """What each stage consumes at each input."""


def expect(plan: Plan) -> Expected:
    expected = Expected()
    emitted: list[Records] = []
    for number, stage in enumerate(plan.stages):
        uid, kind = f"op{number}", kind_of(stage)
        consumed = arriving(stage, emitted)
        out = kind.passed_on(stage, uid, consumed) if stage.inputs else all_records(uid, plan)
        emitted.append(out)
        expected.consumed.append(consumed)
        if number in plan.sinks:
            expected.exact[f"out{number}"] = kind.to_sink(consumed, out)
    return expected


def arriving(stage: Stage, emitted: Sequence[Records]) -> list[Records]:
    """What arrives at each input of a stage's operator, of what the stages before have emitted."""
    kind, copies = kind_of(stage), copies_to(stage)
    streams = [Counter({r: n * copies for r, n in emitted[i].items()}) for i in stage.inputs]
    return streams if kind.inputs > 1 else [sum(streams, Records())]


def copies_to(stage: Stage) -> int:
    """How often each record of its streams comes to a stage's operator."""
    kind = kind_of(stage)
    broadcast = EDGES[stage.edge].copies and not kind.keyed  # Otherwise, keys decide.
    return kind.copies * (stage.parallelism[0] if broadcast else 1)


def judge(job: Job, *, exactly_once: bool) -> Verdict:
    """Compare what was committed with what must be."""
    plan, expected, verdict = job.plan, expect(job.plan), Verdict()
    notes: dict[str, list[Note]] = defaultdict(list)
    for number in plan.sinks:
        uid = f"out{number}"
        rows = job.sinks[uid].rows
        for _, _, found in rows:
            for note in found:
                notes[note[1]].append(note)
        if not kind_of(plan.stages[number]).by_chance:
            got = Counter((path, time) for path, time, _ in rows)
            _judge_sink(uid, got, expected.exact[uid], verdict, exactly_once=exactly_once)
    for number, stage in enumerate(plan.stages):
        uid = f"op{number}"
        output = Output(stage, uid, expected.consumed[number], notes[uid], exactly_once)
        kind_of(stage).judge(output, verdict)
    if exactly_once:
        _judge_order(plan, notes, verdict)
        _judge_ids(job, verdict)
    return verdict


def _judge_sink(
    uid: str, got: Records, wanted: Records, verdict: Verdict, *, exactly_once: bool
) -> None:
    lost, more = wanted - got, got - wanted
    verdict.lost += lost.total()
    verdict.duplicated += more.total()
    if lost or (more and exactly_once) or not got.keys() <= wanted.keys():
        verdict.wrong.append(f"{uid}: lost {some(lost)}, too many {some(more)}")


def _judge_ids(job: Job, verdict: Verdict) -> None:
    """Two parts of one subtask's output with one checkpoint id are right here, and lost in other sinks."""
    for uid, sink in job.sinks.items():
        if sink.alike and not verdict.wrong:
            verdict.wrong.append(f"{uid}: output has an id that it had before: {sink.alike[:3]}")


def _judge_order(plan: Plan, notes: dict[str, list[Note]], verdict: Verdict) -> None:
    """Records of one split that have taken the same way and have the same keys were numbered in order."""
    numbered: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for place, stage in enumerate(plan.stages):
        uid, keys = f"op{place}", keys_on_the_way(plan, place)
        if not kind_of(stage).numbers or keys is None:
            continue
        for _, _, _, count, path in set(notes[uid]):
            (name, split, number, *way), residues = path, [key_of(path, n) for n in keys]
            numbered[uid, name, split, (*way,), (*residues,)].append((count, number))
    for where, found in numbered.items():
        numbers = [number for _, number in sorted(found)]
        if numbers != sorted(numbers):
            verdict.wrong.append(f"records of {where} were counted in the order {numbers}")


def keys_on_the_way(plan: Plan, number: int) -> tuple[int, ...] | None:
    """By which numbers of keys records are dealt up to a stage, if such ones keep their order until there.

    None if their order is left to chance, or not told by the way that they have taken.
    """
    stage = plan.stages[number]
    if not stage.inputs:
        return ()
    if len(stage.inputs) > 1 or not kind_of(stage).keeps_order:
        return None
    keys = keys_on_the_way(plan, stage.inputs[0])
    senders = plan.stages[stage.inputs[0]]
    for form in range(plan.forms):
        widths = senders.parallelism[form], stage.parallelism[form]
        more = _keys_of_edge(stage, stage.edit(form).edge, *widths)
        keys = None if keys is None or more is None else (*keys, *more)
    return keys


def _keys_of_edge(stage: Stage, edge: str, senders: int, receivers: int) -> tuple[int, ...] | None:
    keys = kind_of(stage).dealt_by(stage, edge)
    if keys is not None:
        return (keys,)
    return () if EDGES[edge].straight(senders, receivers) else None
