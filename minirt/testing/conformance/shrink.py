"""Looks for the smallest case that still fails.

A greedy search in the manner of Hughes' QuickCheck: of the ways to make a case a little smaller the
boldest comes first, and the first that still fails is where the search goes on. A smaller job takes
other steps under the same seed, so each candidate gets several seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from minirt.testing.conformance.cases import Case, Run
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.faults import Faults
from minirt.testing.quiet import quiet

RunCase = Callable[[Case], Run]

STEPS_MAX = 2_000_000
"""How many steps all runs of one search may take: half a minute or so."""

_SEEDS_PER_CANDIDATE = 10
_LAST_SEEDS = 40


def shrink(
    failed: Run,
    run_case: RunCase,
    *,
    steps_max: int = STEPS_MAX,
    on_run: Callable[[int, Case], None] = lambda runs, case: None,
) -> Run:
    """The run of the smallest failing case that was found, perhaps `failed`.

    Of several seeds under which that case fails, it is the one whose run takes the fewest steps.
    The search ends when its runs have taken `steps_max` simulated steps in all. `on_run` hears the
    number of each run, and the smallest case until then. The same run shrinks in the same way every
    time.
    """
    search = _Search(run_case, steps_max, on_run, failed)
    while search.go_on():
        pass
    search.calm_down()
    return search.smallest


class _Search:
    def __init__(
        self,
        run_case: RunCase,
        steps_max: int,
        on_run: Callable[[int, Case], None],
        failed: Run,
    ) -> None:
        self.smallest = failed
        self._run_case = run_case
        self._steps_left = steps_max
        self._runs = 0
        self._on_run = on_run

    def go_on(self) -> bool:
        """Take one step to a smaller case; False if none was found."""
        own = self.smallest.case.seed
        for candidate in smaller(self.smallest.case):
            for seed in (own, *range(_SEEDS_PER_CANDIDATE)):
                run = self._run(replace(candidate, seed=seed))
                if run is None:
                    return False
                if run.wrong:
                    self.smallest = run
                    return True
        return False

    def calm_down(self) -> None:
        """Take the seed under which the least happens."""
        case = self.smallest.case
        for seed in range(_LAST_SEEDS):
            run = self._run(replace(case, seed=seed))
            if run is None:
                return
            if run.wrong and run.result.steps < self.smallest.result.steps:
                self.smallest = run

    def _run(self, case: Case) -> Run | None:
        """None if the search has taken all of its steps."""
        if self._steps_left <= 0:
            return None
        self._runs += 1
        self._on_run(self._runs, self.smallest.case)
        with quiet():
            run = self._run_case(case)
        self._steps_left -= run.result.steps
        return run


def smaller(case: Case) -> Iterator[Case]:
    """The ways to make a case a little smaller, the boldest first."""
    plan, faults = case.plan, case.faults
    if faults != Faults.none():
        yield replace(case, faults=Faults.none())
    yield from (replace(case, plan=each) for each in _smaller_plans(plan))
    for kind in fields(Faults):
        if getattr(faults, kind.name):
            yield replace(case, faults=replace(faults, **{kind.name: 0}))


def _smaller_plans(plan: Plan) -> Iterator[Plan]:
    if plan.forms > 1:
        yield from (_only_form(plan, form) for form in range(plan.forms))
    if plan.max_drift_ms is not None:
        yield replace(plan, max_drift_ms=None)
    if plan.watermarks != Plan.watermarks:
        yield replace(plan, watermarks=Plan.watermarks)
    for number in range(len(plan.stages)):
        if plan.sinks != [number]:
            yield _only_up_to(plan, number)
    for number, stage in reversed(list(enumerate(plan.stages))):
        if stage.inputs:
            yield _without(plan, number)
    for splits, count in ((1, plan.count), (plan.splits, plan.count // 2)):
        if 0 < splits * count < plan.splits * plan.count:
            yield replace(plan, splits=splits, count=count)
    for number, stage in enumerate(plan.stages):
        for simpler in _simpler_stages(stage):
            stages = (*plan.stages[:number], simpler, *plan.stages[number + 1 :])
            yield replace(plan, stages=stages)
    for splits, count in ((plan.splits - 1, plan.count), (plan.splits, plan.count - 1)):
        if splits and count:
            yield replace(plan, splits=splits, count=count)


def _only_form(plan: Plan, form: int) -> Plan:
    stages = [
        replace(
            stage,
            parallelism=(stage.parallelism[form],),
            edits=stage.edits and (stage.edits[form],),
        )
        for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages), forms=1)


def _only_up_to(plan: Plan, number: int) -> Plan:
    """The one stage, as the only one with a sink, and what it reads from."""
    needed = {number}
    for i in range(number, -1, -1):
        if i in needed:
            needed.update(plan.stages[i].inputs)
    return _kept(plan, sorted(needed))


def _without(plan: Plan, number: int) -> Plan:
    """Whoever reads from this stage reads from its first input instead."""
    instead = plan.stages[number].inputs[0]
    stages = tuple(
        replace(stage, inputs=tuple(instead if i == number else i for i in stage.inputs))
        for stage in plan.stages
    )
    return _kept(replace(plan, stages=stages), [i for i in range(len(stages)) if i != number])


def _kept(plan: Plan, numbers: list[int]) -> Plan:
    place = {number: i for i, number in enumerate(numbers)}
    stages = (plan.stages[number] for number in numbers)
    return replace(
        plan,
        stages=tuple(replace(s, inputs=tuple(place[i] for i in s.inputs)) for s in stages),
    )


def _simpler_stages(stage: Stage) -> Iterator[Stage]:
    widths = stage.parallelism
    for fewer in ((1,) * len(widths), tuple(max(1, width - 1) for width in widths)):
        if fewer != widths:
            yield replace(stage, parallelism=fewer)
    if stage.edits:
        yield replace(stage, edits=())
        for place, edit in enumerate(stage.edits):
            if edit.more:
                fewer_more = replace(edit, more=edit.more - 1)
                before, after = stage.edits[:place], stage.edits[place + 1 :]
                yield replace(stage, edits=(*before, fewer_more, *after))
    if not stage.named:
        yield replace(stage, named=True)
    if stage.edge != "plain" and not stage.edits:
        yield replace(stage, edge="plain")
    if stage.keys > 1:
        yield replace(stage, keys=1)
    if not stage.chain:
        yield replace(stage, chain=True)
    if len(stage.inputs) == 1 and stage.kind != "map":
        yield replace(stage, kind="map")
