"""The jobs of plans: each form of a plan as an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import minirt as rt
from minirt.testing import TransactionalSink
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.stages import SOURCE, kind_of
from minirt.testing.conformance.stages.base import MORE, Site


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
        before = _in_front(plan, stage, number, form, streams)
        site = Site(stage, number, form, plan, before)
        added = kind_of(stage).add(site) if stage.inputs else SOURCE.begin(env, site)
        streams.append(added)
        if number in plan.sinks:
            out = kind_of(stage).for_sink(added)
            out.sink(sinks[f"out{number}"], uid=f"out{number}", parallelism=site.width)
    return env


def _in_front(
    plan: Plan, stage: Stage, number: int, form: int, streams: Sequence[rt.Stream]
) -> list[rt.Stream]:
    """The streams to a stage, behind operators that an edit has put in front of it."""
    return [
        _passed_on(streams[i], f"op{number}{MORE}{place}", stage, plan.stages[i], form)
        for place, i in enumerate(stage.inputs)
    ]


def _passed_on(stream: rt.Stream, uid: str, stage: Stage, sender: Stage, form: int) -> rt.Stream:
    edit, width = stage.edit(form), sender.parallelism[form]
    for number in range(edit.more):
        own = f"{uid}-{number}" if stage.named else None
        stream = stream.map(lambda r: r, uid=own, parallelism=width, chain=edit.chain)
    return stream
