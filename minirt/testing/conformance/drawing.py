"""Draws plans of random jobs, and edits them as users do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from minirt.testing.conformance.edges import EDGES
from minirt.testing.conformance.plans import Edit, Plan, Stage
from minirt.testing.conformance.stages import SOURCE, STAGES, kind_of
from minirt.testing.conformance.watermarks import WATERMARKS

_WIDTHS = (1, 1, 2, 2, 3, 3, 4, 5)


def draw_plan(random: Random, *, stages: int = 4, records: int = 16) -> Plan:
    """A random job: a source or two, then stages that take any stream there is."""
    forms = random.choice((1, 1, 2, 3))
    splits = random.randint(1, 4)
    drawn: list[Stage] = []
    for number in range(random.randint(1, stages) + random.randint(1, 2)):
        open_ends = [i for i, stage in enumerate(drawn) if not kind_of(stage).by_chance]
        drawn.append(_draw_stage(random, drawn, open_ends, forms, is_source=number == 0))
    count, drift = max(1, records // splits), random.choice((None, None, 1, 4, 12))
    marks = random.choice([*WATERMARKS])
    return Plan(tuple(drawn), splits, count, forms, max_drift_ms=drift, watermarks=marks)


def building_plan(random: Random) -> Plan:
    """Records to operators with state of many keys, of which each snapshot stores what has changed.

    So snapshots build on older ones, also on those of checkpoints that have failed, and must not on what
    was never stored.
    """
    forms = random.randint(1, 2)

    def stage(kind: str, *inputs: int) -> Stage:
        parallelism = tuple(random.randint(1, 2) for _ in range(forms))
        return Stage(kind, inputs, "plain", True, random.randint(16, 32), parallelism)

    kinds = [kind for kind in STAGES.values() if kind.keyed and not kind.multiplies]
    kind = random.choice([kind for kind in kinds for _ in range(kind.weight)])
    stages = (stage(SOURCE.name), stage("count", 0), stage(kind.name, *(0,) * kind.streams))
    return Plan(stages, splits=2, count=40, forms=forms, stretch=1)


def _draw_stage(
    random: Random, drawn: Sequence[Stage], open_ends: Sequence[int], forms: int, *, is_source: bool
) -> Stage:
    parallelism = tuple(random.choice(_WIDTHS) for _ in range(forms))
    if is_source or random.random() < 0.1:
        return Stage(SOURCE.name, (), "plain", True, 1, parallelism)
    kind = random.choice([kind for kind in STAGES.values() for _ in range(kind.weight)])
    # Newer stages are likelier, so that graphs grow long as well as wide.
    inputs = tuple(
        open_ends[-1 - int(random.random() ** 2 * len(open_ends))] for _ in range(kind.streams)
    )
    if kind.multiplies and any(_many(drawn, i) for i in inputs):
        inputs = (0,) * kind.streams
    edge = random.choice([*EDGES])
    if not kind.takes(EDGES[edge]):
        edge = "plain"
    if EDGES[edge].equal and all(len(set(drawn[i].parallelism)) == 1 for i in inputs):
        parallelism = drawn[inputs[0]].parallelism
    if EDGES[edge].copies:  # How often records come depends on it.
        parallelism = parallelism[:1] * forms
    chain = random.random() < 0.7
    return Stage(kind.name, inputs, edge, chain, random.randint(1, 5), parallelism)


def _many(drawn: Sequence[Stage], number: int) -> bool:
    """Whether a stage may give out many times as many records as there are."""
    stage = drawn[number]
    own = kind_of(stage).multiplies or EDGES[stage.edge].copies
    return own or any(_many(drawn, i) for i in stage.inputs)


def edited(plan: Plan, random: Random) -> Plan:
    """The plan with forms that are written otherwise: as a user edits a job from start to start."""
    stages = plan.stages
    if plan.forms == 1:
        stages = tuple(_in_two_forms(stage, random) for stage in stages)
    forms = max(2, plan.forms)
    stages = tuple(_edited(stage, forms, random) for stage in stages)
    return replace(plan, stages=stages, forms=forms)


def _in_two_forms(stage: Stage, random: Random) -> Stage:
    [width] = stage.parallelism
    other = width if EDGES[stage.edge].copies else random.choice((width, *_WIDTHS))
    return replace(stage, parallelism=(width, other))


def _edited(stage: Stage, forms: int, random: Random) -> Stage:
    if not stage.inputs:
        return stage
    # How often records come depends on a broadcast.
    kinds = [kind for kind in EDGES.values() if kind_of(stage).takes(kind)]
    others = [kind.name for kind in kinds if not kind.copies]
    if EDGES[stage.edge].copies:
        others = [stage.edge]
    edits = [Edit(stage.edge, stage.chain, int(random.random() < 0.2))]
    while len(edits) < forms:
        edge = random.choice(others) if random.random() < 0.4 else stage.edge
        chain = stage.chain ^ (random.random() < 0.4)
        edits.append(Edit(edge, chain, random.choice((0, 0, 1, 2))))
    named = kind_of(stage).needs_uid or random.random() < 0.5
    return replace(stage, edits=tuple(edits), named=named)


def ordered_plan(random: Random) -> Plan:
    """Records in order of their keys over edges that do not look at keys, at several parallelisms."""
    widths = tuple(random.sample(range(1, 5), random.randint(2, 3)))

    def stage(kind: str, edge: str, chain: bool, *inputs: int) -> Stage:
        return Stage(kind, inputs, edge, chain, 4, widths)

    stages = [stage("source", "plain", True), stage("count", "plain", True, 0)]
    for _ in range(random.randint(1, 2)):
        edge = random.choice(("plain", "forward", "rescale"))
        kind = random.choice(("map", "columns")) if edge != "plain" else "map"
        stages.append(stage(kind, edge, False, len(stages) - 1))
    stages.append(stage("count", "plain", True, len(stages) - 1))
    return Plan(tuple(stages), random.randint(2, 4), 14, len(widths))


def rechained_plan(random: Random) -> Plan:
    """Records through operators that are chained in some forms, and get them in turn in others."""
    widths = tuple(random.randint(1, 3) for _ in range(3))

    def stage(kind: str, *inputs: int) -> Stage:
        edits = (Edit(random.choice(("plain", "rebalance", "rebalance")), True) for _ in widths)
        return Stage(kind, inputs, "plain", True, 4, widths, tuple(edits) if inputs else ())

    stages = (stage("source"), stage("map", 0), stage("map", 1), stage("count", 2))
    return Plan(stages, 2, 14, len(widths))


def branched_plan(random: Random) -> Plan:
    """Records to several operators of a chain, of which some are chains of their own in some forms."""
    widths = tuple(random.randint(1, 3) for _ in range(3))

    def stage(kind: str, *inputs: int) -> Stage:
        edges = ("plain", "plain", "plain", "rebalance")
        edits = tuple(Edit(random.choice(edges), random.random() < 0.8) for _ in widths)
        return Stage(kind, inputs, "plain", True, 4, widths, edits if inputs else ())

    stages = [stage("source"), stage("map", 0)]
    for _ in range(random.randint(2, 4)):
        kind = random.choice(("map", "filter", "flat", "batches", "columns", "split", "ask"))
        stages.append(stage(kind, random.randrange(len(stages))))
    for kind in ("count", "timers"):
        stages.append(stage(kind, random.randrange(1, len(stages))))
    return Plan(tuple(stages), 2, 14, len(widths))


def renamed_plan(random: Random) -> Plan:
    """Records through two operators without uids, and one more that is elsewhere in each form."""
    widths = tuple(random.randint(1, 3) for _ in range(3))
    places = [random.choice((1, 2)) for _ in widths]

    def stage(kind: str, number: int, *inputs: int) -> Stage:
        edits = tuple(Edit("rebalance", False, int(place == number)) for place in places)
        return Stage(kind, inputs, "rebalance", False, 4, widths, edits, named=kind != "map")

    maps = (stage("map", 1, 0), stage("map", 2, 1))
    source = Stage("source", (), "plain", True, 1, widths)
    return Plan((source, *maps, stage("count", 3, 2)), 2, 14, len(widths))


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
