"""An operator of another package runs like minirt's own: in every mode, through crashes and rescales."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import minirt as rt
from minirt.modes import MODES
from minirt.protocol.families import TakesLocalSnapshots
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered
from tests.campaigns import sampled
from tests.operators.numbering import Numbering

SPLITS, COUNT, KEYS, NTH = 3, 12, 4, 3
SEEDS = range(sampled(9))


def left_key(record: tuple[str, int, int]) -> int:
    return record[2] % KEYS


def right_key(record: tuple[str, int, int]) -> int:
    return (record[1] + record[2]) % KEYS


def job(main: rt.Sink, side: rt.Sink, parallelism: int) -> rt.Environment:
    env = rt.Environment("outside", parallelism=parallelism, max_parallelism=16)
    left, right = (
        env.source(NumberedSource(uid, SPLITS, COUNT), uid=uid) for uid in ("left", "right")
    )
    both = left.connect(right).key_by(left_key, right_key)
    out = both.apply(Numbering(NTH), uid="numbering")
    out.sink(main, uid="main")
    out.side_output("nth").sink(side, uid="side")
    return env


def per_key() -> Counter[int]:
    """How many records each key has."""
    return Counter(map(left_key, numbered("left", SPLITS, COUNT))) + Counter(
        map(right_key, numbered("right", SPLITS, COUNT))
    )


def judge(main: list[tuple[int, int, object]], side: list[tuple[int, int, object]]) -> None:
    """Every record is numbered once, and the numbers of a key have no gap."""
    assert all(number % NTH for _, number, _ in main)
    assert not any(number % NTH for _, number, _ in side)
    found = Counter((key, number) for key, number, _ in [*main, *side])
    assert found == Counter((key, n + 1) for key, most in per_key().items() for n in range(most))
    records = Counter(record for _, _, record in [*main, *side])
    assert set(records.values()) == {1}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "at_least_once"])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_counts_every_record_once_whatever_crashes(mode: str, seed: int) -> None:
    main, side = TransactionalSink(), TransactionalSink()
    # Without barriers, only a savepoint is sure to be restorable at another parallelism.
    only = isinstance(MODES[mode], TakesLocalSnapshots)
    forms = [job(main, side, parallelism) for parallelism in ((2,) if only else (2, 3, 1))]
    simulate(
        forms[0],
        seed=seed,
        rescaled=forms[1:],
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
    ).check()
    judge(main.rows, side.rows)


@pytest.mark.processes
def test_it_runs_in_worker_processes(tmp_path: Path) -> None:
    main, side = rt.CollectSink(), rt.CollectSink()
    env = job(main, side, 2)
    env.execute(checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="50ms"))
    judge(main.rows, side.rows)


def test_the_plan_shows_it() -> None:
    text = job(rt.CollectSink(), rt.CollectSink(), 2).plan()
    assert "numbering" in text
    assert "side output nth" in text


def test_its_own_checks_refuse_a_wrong_use() -> None:
    env = rt.Environment()
    left = env.source(rt.SequenceSource(3), uid="left")
    both = left.connect(left)
    with pytest.raises(rt.ConfigurationError, match=r"numbering.*call key_by before it"):
        both.apply(Numbering(2))
    keyed = both.key_by(str, str)
    with pytest.raises(rt.ConfigurationError, match="nth must be above 0, got 0"):
        keyed.apply(Numbering(0))
    with pytest.raises(rt.ConfigurationError, match="one side output, 'nth', and no 'other'"):
        keyed.apply(Numbering(2)).side_output("other")
    with pytest.raises(
        rt.ConfigurationError, match="expected OperatorSpec, got <built-in function len>"
    ):
        both.apply(len)  # type: ignore[arg-type]
    with pytest.raises(rt.ConfigurationError, match="has 2 inputs, but 1 lead into it"):
        left.key_by(str).apply(Numbering(2), uid="one")
