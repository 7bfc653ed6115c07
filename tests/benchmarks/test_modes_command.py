"""`python -m benchmarks.modes`: its records are not packed away, and every row has a figure or a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.modes import PLACES, QUICK, backpressured_job, measure
from minirt import DiscardSink
from minirt.cli.bench_payload import PAYLOAD_CHARS, payload
from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from tests.campaigns import modes


def test_payloads_differ_and_take_their_room_in_every_frame() -> None:
    numbers = range(0, 8192, 2)
    texts = [payload(number) for number in numbers]
    assert len(set(texts)) == len(texts)
    assert {len(text) for text in texts} == {PAYLOAD_CHARS}
    packed = RowCodec().encode(
        Rows([(number, text) for number, text in zip(numbers, texts, strict=True)])
    )
    assert len(packed) > PAYLOAD_CHARS * len(texts)


def test_payloads_are_those_of_the_peer() -> None:
    """What `Payload.java` gives for the same numbers."""
    assert payload(0)[:16] == "kOaorBBJeBWh6UyZ"
    assert payload(123_456_789)[:16] == "vc2TCivgAhaKktkQ"


@pytest.mark.parametrize("slow", PLACES)
def test_one_map_is_slow_where_it_was_asked_for(slow: str) -> None:
    operators = backpressured_job(2, slow, 0.1, DiscardSink()).graph("job").operators
    names = [node.name for node in operators.values()]
    assert [name for name in names if "Slow" in name] == ["map: Slow"]
    assert names.index("map: Slow") < len(names) - 2 or slow == "end"


@pytest.mark.processes
@pytest.mark.parametrize("mode", modes())
def test_a_quick_row_of_every_mode_has_figures(mode: str) -> None:
    row = measure(mode, "middle", 1.0, 1, False, replace(QUICK, checkpoints=1, seconds=60.0))
    assert row["checkpoints"] >= 1
    assert row["duration_ms"]["p50"] > 0
    assert row["recovery_ms"] > 0
    assert row["note"] is None


@pytest.mark.processes
def test_a_row_without_a_checkpoint_says_what_barriers_waited_behind() -> None:
    row = measure("aligned", "end", 20.0, 1, False, replace(QUICK, seconds=0.5))
    assert row["checkpoints"] == 0
    assert "none in 0.5 s" in row["note"]
    assert "B in queues" in row["note"]
