"""Jobs that fail wherever the functions of a user run lose nothing, repeat nothing and keep the order.

In the manner of Flink's UnalignedCheckpointITCase: real processes, full queues, and a checker that knows
nothing of the runtime. `python -m tests.oracle.soak` runs more, larger and random ones.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import minirt as rt
from minirt.modes import MODES
from tests.campaigns import soaked
from tests.oracle.board import AT_START, HOOKS, Failure
from tests.oracle.running import TINY, Outcome, Plan, closing, is_ordered, run
from tests.oracle.topologies import TOPOLOGIES

pytestmark = pytest.mark.processes

MIXED = (
    Failure("process", completed=1),
    Failure("prepare", completed=1),
    Failure("open"),
    Failure("process", completed=1, kill=True),
)
BRIEF = (Failure("process", completed=1), Failure("prepare", completed=1, kill=True))

SLOTS = rt.Options(placement="slots", limits=TINY, allow_pickle=True)
"""Fewer processes than subtasks, so that the tests are quick."""


def check(plan: Plan, outcome: Outcome) -> None:
    exactly_once = MODES[plan.mode].exactly_once
    assert outcome.wrong(exactly_once=exactly_once, ordered=is_ordered(plan)) == []
    assert outcome.restarts == len(plan.failures) - closing(plan.failures)
    assert outcome.values > 0
    if plan.mode == "unaligned":
        assert outcome.recovered_bytes > 0, "no in-flight data came back: the run shows nothing"


QUICK = ("aligned", "at_least_once", "unaligned", "uncoordinated")
"""A mode of each family and guarantee; real workers run in all of them in `tests/runtime/test_flood.py`."""


@pytest.mark.parametrize(
    ("mode", "parallelism"),
    [
        pytest.param(mode, parallelism, marks=[] if quick else [pytest.mark.soak])
        for mode in MODES
        for parallelism in (1, 2, 5)
        for quick in [mode in QUICK and parallelism == (5 if mode == "unaligned" else 2)]
    ],
)
def test_every_mode_at_every_parallelism(mode, parallelism, tmp_path):
    plan = Plan("pipeline", mode, (parallelism,), MIXED)
    if parallelism == 2 and mode not in ("aligned", "unaligned"):
        plan = replace(plan, options=SLOTS)
    check(plan, run(plan, tmp_path))


LIKE_OTHERS = ("sides", "skewed", "twice")
"""Topologies whose edges others have, too."""


@pytest.mark.parametrize(
    "name", [*sorted(TOPOLOGIES.keys() - {"pipeline", *LIKE_OTHERS}), *soaked(*LIKE_OTHERS)]
)
def test_every_topology_with_data_in_flight(name, tmp_path):
    plan = Plan(name, "unaligned", (1 if name == "large" else 2,), BRIEF, options=SLOTS)
    check(plan, run(plan, tmp_path))


@pytest.mark.parametrize("name", ["multi_input", *soaked("union", "keyed_different_parallelism")])
def test_aligned_barriers_of_several_inputs(name, tmp_path):
    plan = Plan(name, "aligned", (2,), BRIEF, options=SLOTS)
    check(plan, run(plan, tmp_path))


@pytest.mark.parametrize("kill", [False, True], ids=["raises", "dies"])
def test_failures_in_every_hook(kill, tmp_path):
    hooks = [hook for hook in HOOKS if not (kill and hook == "commit")]
    failures = [
        Failure(hook, completed=hook not in (*AT_START, "close"), kill=kill) for hook in hooks
    ]
    plan = Plan("pipeline", "unaligned", (2,), tuple(failures))
    check(plan, run(plan, tmp_path))


@pytest.mark.parametrize(
    ("name", "parallelism"),
    [
        ("pipeline", (2, 5, 1)),
        ("custom_partitioner", (3, 2)),
        ("keyed_broadcast", (2, 3)),
        ("union", (3, 1, 2)),
        ("forward", (2, 3)),
        ("straight_on", (3, 2)),
    ],
)
def test_in_flight_data_is_dealt_again_at_another_parallelism(name, parallelism, tmp_path):
    failures = (Failure("process", completed=1), Failure("open"), Failure("write", kill=True))
    failures = failures[: len(parallelism)]
    plan = Plan(name, "unaligned", parallelism, failures, checkpoints=1, options=SLOTS)
    check(plan, run(plan, tmp_path))


@pytest.mark.parametrize(
    "options",
    [
        replace(SLOTS, workers=2),
        rt.Options(transport="tcp", limits=TINY, allow_pickle=True),
        rt.Options(buffer_timeout=0, limits=TINY, allow_pickle=True),
        rt.Options(
            limits=replace(TINY, input_queue_bytes=1, output_queue_bytes=1), allow_pickle=True
        ),
    ],
    ids=["slots", "tcp", "unbuffered", "queues-of-a-byte"],
)
def test_workers_and_queues_of_another_kind(options, tmp_path):
    plan = Plan("twice", "unaligned", (3,), BRIEF, options=options)
    check(plan, run(plan, tmp_path))
