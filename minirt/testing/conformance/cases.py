"""One run of the kit: a case is a job and what may go wrong; running it shows how a mode does."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from random import Random

import minirt as rt
from minirt.errors import ConfigurationError
from minirt.protocol import plain
from minirt.protocol.barriers import CheckpointMode, may_overlap
from minirt.protocol.families import TakesLocalSnapshots
from minirt.state import segments
from minirt.testing.conformance.cuts import CutChecker
from minirt.testing.conformance.drawing import building_plan, draw_plan, edited
from minirt.testing.conformance.graphs import build
from minirt.testing.conformance.oracle import judge
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.stages import kind_of
from minirt.testing.conformance.stages.base import Verdict
from minirt.testing.faults import Faults
from minirt.testing.result import SimulationResult
from minirt.testing.simulator import simulate

STEPS_MAX = 200_000
"""Several times as many as any job that is drawn needs."""

_EDITED_RATE = 0.25
_BUILDING_RATE = 0.1

_REFUSAL = re.compile(
    r"in-flight records of edges .*'\S+ > \S+' \(\d+ bytes\).*: .*aligned checkpoint.*ignore_in_flight"
)
"""What a refusal has to say: which edges, why, and the ways out."""

_INTERVALS_S = (0.005, 0.02, 0.08, 1.0, 20.0)
"""Time is simulated and long ones cost nothing: timers of a mode, however long, come in time or late."""


_LONG_TIMEOUT = 300
"""In intervals."""

_CONCURRENT = (1, 1, 2, 3)
"""How many checkpoints may be under way at a time, in modes that allow several."""


@dataclass(frozen=True)
class Case:
    """Everything about a run but the mode. The same case takes the same steps in any process."""

    plan: Plan
    seed: int
    """Draws the schedule, the options, and which fault strikes when."""
    faults: Faults = field(default_factory=Faults)

    @property
    def token(self) -> str:
        """The case as a text without blanks."""
        packed = zlib.compress(json.dumps(plain.to_plain(self)).encode(), 9)
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def from_token(cls, token: str) -> Case:
        """Raises ConfigurationError if it is not the whole token of a case."""
        try:
            packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            return plain.from_plain(cls, json.loads(zlib.decompress(packed)))
        except (ValueError, zlib.error) as error:
            raise ConfigurationError(
                f"{token!r} is no token of a case; copy all of what the kit printed ({error})"
            ) from error


@dataclass(frozen=True)
class Run:
    """What was seen of a mode in one case."""

    case: Case
    mode: str
    exactly_once: bool
    result: SimulationResult
    verdict: Verdict
    cuts: int
    """How many completed checkpoints were looked into."""
    in_flight: int
    """How many captured records these held."""
    refused: int = 0
    """How many restores of an edited job were refused, with the edge and the ways out.

    Or of a checkpoint without barriers at another parallelism: it may hold records of any edge.
    """

    @property
    def wrong(self) -> list[str]:
        """What must not be; empty if the mode did what it claims."""
        return [*self.result.problems] or self.verdict.wrong


def draw_case(seed: int) -> Case:
    """A random job, in some cases edited from start to start, threatened by every kind of fault.

    In some cases its snapshots build on older ones.
    """
    building = Random(f"building {seed}")
    if building.random() < _BUILDING_RATE:
        return Case(building_plan(building), seed)
    plan, edits = draw_plan(Random(f"job {seed}")), Random(f"edits {seed}")
    return Case(edited(plan, edits) if edits.random() < _EDITED_RATE else plan, seed)


class _Refusals:
    """Tells the refusals of edited jobs from other errors, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def may_refuse(self, error: Exception | None) -> bool:
        refused = is_refusal(error)
        self.count += refused
        return refused


def is_refusal(error: Exception | None) -> bool:
    """Whether an edited job is told which edges are in its way, and what to do."""
    return isinstance(error, ConfigurationError) and bool(_REFUSAL.search(str(error)))


def run_case(case: Case, mode: CheckpointMode, *, look_into_checkpoints: bool = True) -> Run:
    """Simulate the case until it ends or a problem shows; always returns.

    A mode that does not claim to be exactly once may show records twice, but only after a restart.
    Without a look into checkpoints, the mode is judged by the committed output alone.
    """
    case = _suited(case, mode)
    job = build(case.plan)
    cuts = CutChecker(job, exactly_once=mode.exactly_once)
    refusals = _Refusals()
    may_refuse = case.plan.edited or isinstance(mode, TakesLocalSnapshots)
    first, *rescaled = job.forms
    with _stretch(case.plan.stretch):
        result = simulate(
            first,
            seed=case.seed,
            checkpointing=_checkpointing(case.seed, mode),
            faults=case.faults,
            rescaled=rescaled,
            steps_max=STEPS_MAX,
            on_checkpoint=cuts.look_at if look_into_checkpoints and case.plan.named else None,
            stop_at_problem=True,
            may_refuse=refusals.may_refuse if may_refuse else _refuses_nothing,
        )
    if result.problems:
        verdict = Verdict()  # There is more to come.
    else:
        verdict = judge(job, exactly_once=mode.exactly_once or not result.restarts)
    return Run(
        *(case, mode.name, mode.exactly_once, result, verdict),
        *(cuts.looked_into, cuts.in_flight, refusals.count),
    )


def _suited(case: Case, mode: CheckpointMode) -> Case:
    """The case, with other stages for those that the mode refuses by name before a job starts."""
    if not isinstance(mode, TakesLocalSnapshots):
        return case
    stages = tuple(
        replace(stage, kind=kind_of(stage).instead or stage.kind) for stage in case.plan.stages
    )
    return replace(case, plan=replace(case.plan, stages=stages))


@contextmanager
def _stretch(least: int | None) -> Iterator[None]:
    """Snapshots write so many keys at least meanwhile; None: as in jobs."""
    before = segments.STRETCH_MIN
    segments.STRETCH_MIN = before if least is None else least
    try:
        yield
    finally:
        segments.STRETCH_MIN = before


def _refuses_nothing(error: Exception | None) -> bool:
    return False


def _checkpointing(seed: int, mode: CheckpointMode) -> rt.Checkpointing:
    random = Random(f"checkpoints {seed}")
    interval_s = random.choice(_INTERVALS_S)
    checkpointing = rt.Checkpointing(
        "simulated://",
        interval=interval_s,
        timeout=interval_s * random.choice((60, _LONG_TIMEOUT)),
        min_pause=interval_s * random.choice((0, 0.5)),
        mode=mode,
        retain=random.randint(1, 3),
        tolerable_failures=20,
        watermarks=random.choice(("regenerated", "restored")),
    )
    most = random.choice(_CONCURRENT) if may_overlap(mode) else 1
    return checkpointing if most == 1 else overlapping(checkpointing, most)


def overlapping(checkpointing: rt.Checkpointing, most: int) -> rt.Checkpointing:
    """The same with so many checkpoints under way at a time, and no pause between two of them.

    The simulated coordinator hears of them one message a turn: in a shorter time none might complete.
    """
    timeout = checkpointing.interval_s * _LONG_TIMEOUT
    return replace(checkpointing, timeout=timeout, min_pause=0, max_concurrent=most)


def in_words(case: Case) -> Iterator[str]:
    """The case for people: a line for each operator, then what goes wrong."""
    plan = case.plan
    for number, stage in enumerate(plan.stages):
        width = " then ".join(map(str, dict.fromkeys(stage.parallelism)))
        yield f"op{number}: {_operator(plan, stage)}, parallelism {width}"
        for form, edit in enumerate(stage.edits):
            more = f", behind {_counted(edit.more, 'operator')} more" if edit.more else ""
            chained = "" if edit.chain else ", not chained"
            yield f"    in form {form}: {edit.edge}{chained}{more}"
    for number in plan.sinks:
        yield f"out{number}: sink of op{number}"
    if plan.stretch is not None:
        yield f"snapshots write {_counted(plan.stretch, 'key')} at least, and build on older ones"
    kinds = [f"{n} {f.name}" for f in fields(Faults) if (n := getattr(case.faults, f.name))]
    yield f"faults: {'at most ' + ', '.join(kinds) if kinds else 'none'}"
    yield f"schedule and options: seed {case.seed}"


def _operator(plan: Plan, stage: Stage) -> str:
    if not stage.inputs:
        drift = "" if plan.max_drift_ms is None else f", max_drift {plan.max_drift_ms} ms"
        read = f"{_counted(plan.splits, 'split')} of {_counted(plan.count, 'record')}"
        return f"source, {read}, watermarks {plan.watermarks}{drift}"
    words = kind_of(stage).words
    inputs = " and ".join(f"op{i}" for i in stage.inputs)
    edge = "" if stage.edge == "plain" else f" ({stage.edge})"
    keys = f", {_counted(stage.keys, 'key')}" if "by key" in words else ""
    unnamed = "" if stage.named else ", without a uid"
    return f"{words} of {inputs}{edge}{keys}{'' if stage.chain else ', not chained'}{unnamed}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
