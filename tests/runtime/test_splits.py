"""Splits that cannot be stored, and those that are too few."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import minirt as rt


class OddSplits(rt.SequenceSource):
    info: Any = None
    id = "odd"

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(self.id, {"start": 0, "stop": 1, "odd": self.info})]


def run(source: rt.Source, parallelism: int = 1) -> list[Any]:
    out = rt.CollectSink()
    env = rt.Environment(parallelism=parallelism)
    env.source(source, uid="numbers").sink(out, uid="out")
    env.execute(runner="inline")
    return out.rows


@pytest.mark.parametrize("info", ["\udcff", object(), 2**70, {1, 2}])
def test_a_split_that_no_checkpoint_can_hold_is_refused_at_the_start(info: Any) -> None:
    source = OddSplits(1)
    source.info = info
    with pytest.raises(rt.MinirtError, match=r"numbers.*: split 'odd' cannot be stored"):
        run(source)
    source.id, source.info = "\udcff", None
    with pytest.raises(rt.MinirtError, match=r"split '\\udcff' cannot be stored"):
        run(source)


def test_subtasks_that_have_nothing_to_read_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(rt.SequenceSource(3, splits=3), parallelism=3)
        assert caplog.text == ""
        run(rt.SequenceSource(3, splits=1), parallelism=3)
        run(rt.SequenceSource(3, splits=2), parallelism=3)
    assert "has 1 split for 3 subtasks: 2 of them have nothing to read" in caplog.text
    assert "has 2 splits for 3 subtasks: 1 of them has nothing to read" in caplog.text
    assert "numbers" in caplog.text


def test_a_small_file_has_a_split_for_each_subtask(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"n": n, "text": "x" * 90}) + "\n" for n in range(3000)))
    for parallelism in (1, 2, 3, 4):
        splits = rt.JsonlSource(path).plan_splits(parallelism)
        assert len(splits) == parallelism
    rows = run(rt.JsonlSource(path), parallelism=4)
    assert sorted(row["n"] for row in rows) == [*range(3000)]
