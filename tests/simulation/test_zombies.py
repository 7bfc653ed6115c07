"""Coordinators that sleep between their look at the claims and a commit, and wake up replaced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import minirt as rt
from minirt.testing import Faults, TransactionalSink, simulate
from tests.campaigns import sampled

RECORDS = 60
_COMMITS = re.compile(r"coordinator (\d+): commit a handle$")


def late_commits(trace: Sequence[str]) -> int:
    """How often a coordinator committed after a later one had."""
    who = [int(found[1]) for line in trace if (found := _COMMITS.search(line))]
    return sum(one < max(who[:place]) for place, one in enumerate(who) if place)


def test_who_commits_late_repeats_and_loses_nothing() -> None:
    late = 0
    for seed in range(sampled(60, 2)):
        sink = TransactionalSink()
        env = rt.Environment(parallelism=2)
        numbers = env.source(rt.SequenceSource(RECORDS, splits=3), uid="numbers")
        numbers.rebalance().sink(sink, uid="out")
        result = simulate(env, seed=seed, faults=replace(Faults.none(), zombies=3)).check()
        assert sorted(sink.rows) == list(range(RECORDS)), f"seed {seed}"
        late += late_commits(result.trace)
    assert late > 0
