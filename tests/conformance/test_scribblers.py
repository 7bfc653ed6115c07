"""Random jobs whose functions use every record up: who shares one without owning it is found."""

from __future__ import annotations

from typing import Any

import pytest

from minirt.data.custody import Custody
from minirt.modes import MODES
from minirt.testing.conformance.cases import draw_case, run_case
from tests.campaigns import sampled, seeds

RUNS, SEEDS = sampled(8), 300


def wrong(seed: int, mode: str = "aligned") -> list[str]:
    return run_case(draw_case(seed), MODES[mode]).wrong


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_nobody_sees_what_was_scribbled(mode: str) -> None:
    for seed in range(RUNS):
        assert wrong(seed, mode) == [], f"seed {seed}"


def itself(self: Custody, value: Any) -> Any:
    return value


@pytest.mark.parametrize(("method", "first"), [("take", 0), ("lend", 10), ("take_all", 114)])
def test_custody_that_does_not_copy(
    method: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Custody, method, itself)
    if not any(wrong(seed) for seed in seeds(SEEDS, first)):
        pytest.fail(f"nobody noticed in {SEEDS} runs")


def test_functions_that_are_trusted_without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Custody, "trusts", lambda self, function: True)
    if not any(wrong(seed) for seed in seeds(SEEDS)):
        pytest.fail(f"nobody noticed in {SEEDS} runs")
