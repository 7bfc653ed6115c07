"""`minirt bench`: a quick look at the machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from minirt.modes import MODES

if TYPE_CHECKING:
    from tests.cli.conftest import Call


@pytest.mark.processes
def test_it_measures_every_case_and_every_mode(call: Call) -> None:
    called = call("bench", "--seconds", "0.1", "--json")
    assert called.status == 0, called.err
    assert "Traceback" not in called.err
    measured = json.loads(called.out)
    rates = {row["case"]: row["records_per_s"] for row in measured["throughput"]}
    assert rates.keys() == {"keyed-sum-rows", "keyed-sum-columns"}
    assert min(rates.values()) > 0
    assert [row["mode"] for row in measured["checkpoints"]] == list(MODES)
    for row in measured["checkpoints"]:
        assert (row["median_s"] is None) == (row["checkpoints"] == 0)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "x", "601"])
def test_a_time_that_cannot_be_is_refused(call: Call, seconds: str) -> None:
    called = call("bench", "--seconds", seconds)
    assert called.status == 2
    assert "Traceback" not in called.err
