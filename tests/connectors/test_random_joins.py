"""Joins of random jobs, through crashes, rescales and kills, against the same joins in Spark SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minirt.operators.join import JoinOperator, Pairs
from tests.campaigns import sampled
from tests.connectors.random_jobs import Event, Ran, killed, lasts, simulated
from tests.connectors.random_joins import HOWS, KINDS, LEFT, RIGHT, Case, Result, draw, found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEEDS = 2 * len(KINDS)
LASTING = (seed for seed in count(1000) if lasts([*draw(seed).sides[0], *draw(seed).sides[1]]))
"""Seeds of jobs whose workers can be killed."""
_TYPES = ("STRING", "BIGINT", "STRING", "BIGINT")


def expected(spark: SparkSession, case: Case, late: set[str]) -> Counter[Result]:
    """What Spark gives for the events that were not late."""
    for side, (name, columns) in enumerate((("l", LEFT), ("r", RIGHT))):
        _register(spark, name, columns, case.events(side, late))
    return Counter((row["id"], row["rid"]) for row in spark.sql(case.joined.sql).collect())


def _register(
    spark: SparkSession, name: str, columns: Sequence[str], events: Sequence[Event]
) -> None:
    schema = ", ".join(map(" ".join, zip(columns, _TYPES, strict=True)))
    rows = [tuple(event[column] for column in columns) for event in events]
    spark.createDataFrame(rows, schema).createOrReplaceTempView(name)


def difference(
    spark: SparkSession, case: Case, ran: Ran
) -> tuple[Counter[Result], Counter[Result]]:
    """The results that only minirt gives, and those that only Spark gives."""
    late = {row.get("id") or row["rid"] for row in ran.late}
    own, theirs = found(ran), expected(spark, case, late)
    return own - theirs, theirs - own


def simulation(case: Case) -> Ran:
    return simulated(case.build, case.seed, case.mode, case.widths)


def test_every_join_is_drawn_with_and_without_partners() -> None:
    drawn = {(case.kind, case.how) for case in map(draw, range(400))}
    wanted = {(kind, how) for kind in KINDS for how in HOWS if kind != "as of"}
    assert drawn == wanted | {("as of", "inner"), ("as of", "left")}


@pytest.mark.parametrize("seed", range(sampled(SEEDS, 2)))
def test_random_joins_give_what_spark_gives(spark: SparkSession, seed: int) -> None:
    case = draw(seed)
    assert difference(spark, case, simulation(case)) == (Counter(), Counter()), str(case)


@pytest.mark.processes
@pytest.mark.parametrize("seed", [*islice(LASTING, sampled(2, 2))])
def test_random_joins_give_what_spark_gives_though_workers_are_killed(
    spark: SparkSession, seed: int, tmp_path: Path
) -> None:
    case = draw(seed)
    ran = killed(case.build, seed, case.mode, case.widths, tmp_path)
    assert difference(spark, case, ran) == (Counter(), Counter()), str(case)


def test_a_partner_that_is_missed_is_noticed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    partners = JoinOperator._partners

    def all_but_one(self, side, run, other, pairs):  # type: ignore[no-untyped-def]
        found = partners(self, side, run, other, pairs)
        return Pairs(found.own[1:], found.waiting, found.theirs[1:])

    monkeypatch.setattr(JoinOperator, "_partners", all_but_one)
    cases = (draw(seed) for seed in range(0, 50, len(KINDS)))
    assert any(difference(spark, case, simulation(case))[1] for case in cases)
