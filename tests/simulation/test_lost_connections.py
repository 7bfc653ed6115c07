"""Workers that live on although their coordinator does not hear them any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

import minirt as rt
from minirt.protocol.workers import Workers
from minirt.testing import Faults, TransactionalSink, simulate
from tests.campaigns import runs, sampled
from tests.simulation.test_simulator import job

LOST = replace(Faults.none(), lost_connections=4)
SEEDS = runs(15)
NOTICED = 13
"""From this seed on most runs lose connections of workers that are still at work."""


def nobody_is_seen(workers: Workers, worker: int, now: float) -> None:
    """So nobody counts as silent: that begins with a first sign of life."""


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_a_lost_connection_is_noticed_without_heartbeats_and_loses_nothing(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "on_seen", nobody_is_seen)
    lost = restarts = 0
    for seed in range(NOTICED, NOTICED + SEEDS):
        sink = TransactionalSink()
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
        result = simulate(job(sink), seed=seed, faults=LOST, checkpointing=checkpointing).check()
        assert sorted(sink.rows) == list(range(20)), f"seed {seed}"
        lost += result.faults["lost_connections"]
        restarts += result.restarts
    assert SEEDS / 2 < restarts <= lost


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_connections_that_are_lost_among_other_faults_lose_nothing(mode: str) -> None:
    for seed in range(sampled(15)):
        sink = TransactionalSink()
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
        faults = replace(Faults(), lost_connections=4)
        simulate(job(sink), seed=seed, faults=faults, checkpointing=checkpointing).check()
        assert sorted(sink.rows) == list(range(20)), f"seed {seed}"
