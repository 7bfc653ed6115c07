"""A sink with a ledger in whole simulated jobs: ids of checkpoints are as the ledger needs them."""

from __future__ import annotations

from typing import Any

import pytest

import minirt as rt
from minirt.io.base import CommitterContext, SinkCommitter
from minirt.io.ledger import LedgerCommitter, LedgerEntry
from minirt.testing import simulate
from minirt.testing.sinks import FakeSystem, FakeSystemSink
from tests.campaigns import sampled, seeds

COUNT = 24
RUNS = sampled(12)
MODES = ("aligned", "unaligned")


def checkpointing(mode: str) -> rt.Checkpointing:
    return rt.Checkpointing("simulated://", interval="20ms", mode=mode)


def job(system: FakeSystem, kind: type[FakeSystemSink] = FakeSystemSink) -> rt.Environment:
    env = rt.Environment("ledger", parallelism=2)
    numbers = env.source(rt.CollectionSource(list(range(COUNT)), splits=3), uid="numbers")
    named = numbers.rebalance().map(lambda n: {"id": n}, uid="named")
    named.sink(kind(system), uid="out")
    return env


@pytest.mark.parametrize("mode", MODES)
def test_each_record_is_committed_once(mode: str) -> None:
    crashes = 0
    for seed in range(RUNS):
        system = FakeSystem()
        result = simulate(job(system), seed=seed, checkpointing=checkpointing(mode))
        result.check()
        assert sorted(system.records) == list(range(COUNT)), seed
        crashes += sum(result.faults.values())
    assert crashes > RUNS


class Forgetful(FakeSystemSink):
    """Writes whatever comes, without a look at the ledger."""

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _Forgetful(self.connect, context)


class _Forgetful(LedgerCommitter):
    def _write(self, transaction: Any, known: Any, pieces: Any) -> None:
        super()._write(transaction, LedgerEntry(0, known.generation, 0), pieces)


def test_a_ledger_that_is_not_read_is_noticed() -> None:
    """Records show twice, or what is staged is wanted again after its commit."""
    for seed in seeds(40, first=5):
        system = FakeSystem()
        result = simulate(job(system, Forgetful), seed=seed, checkpointing=checkpointing("aligned"))
        if result.problems or len(system.records) > COUNT:
            return
    pytest.fail("nobody noticed in 40 runs")
