"""A sink that refuses for ever what a complete checkpoint holds: no start succeeds, but for the way out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import minirt as rt
from minirt.io import Handle

COUNT = 40


class RefusingSink(rt.JsonlSink):
    """Commits nothing of a checkpoint any more once `refuses` says so."""

    def __init__(self, folder: Path, refuses: Path) -> None:
        super().__init__(folder)
        self.refuses = refuses

    def commit(self, handles: Sequence[Handle]) -> None:
        if self.refuses.exists():
            raise rt.SinkDataError("the target takes none of it")
        super().commit(handles)


def run(folder: Path, **settings: object) -> None:
    env = rt.Environment("refused", parallelism=2)
    numbers = env.source(rt.SequenceSource(COUNT), uid="numbers").map(
        lambda n: {"n": n}, uid="maps"
    )
    numbers.sink(RefusingSink(folder / "out", folder / "refuses"), uid="out")
    numbers.sink(rt.JsonlSink(folder / "too"), uid="too")
    checkpointing = rt.Checkpointing(folder / "checkpoints", interval="1h")
    env.execute(checkpointing=checkpointing, **settings)  # type: ignore[arg-type]


def written(folder: Path) -> list[int]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """Where a job is whose newest checkpoint holds output that nobody takes."""
    (tmp_path / "refuses").touch()
    with pytest.raises(rt.JobFailedError, match="takes none of it"):
        run(tmp_path)
    with pytest.raises(rt.JobFailedError, match="takes none of it") as refused:
        run(tmp_path, restore="latest")
    assert 'restore=1 give_up_output_of="out@1"' in str(refused.value)
    return tmp_path


def test_the_output_of_the_sink_is_given_up_and_all_else_arrives(
    stuck: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(stuck, restore=1, give_up_output_of="out@1")
    assert written(stuck / "out") == []
    assert written(stuck / "too") == list(range(COUNT))
    assert not any(stuck.glob("out/**/*.pending*"))
    said = f"without the output of sink 'out': {COUNT} records in 2 pending outputs"
    assert said in caplog.text
    events = rt.open_checkpoints(stuck / "checkpoints").events()
    [given_up] = [event for event in events if event["event"] == "output given up"]
    assert (given_up["sink"], given_up["checkpoint"], given_up["records"]) == ("out", 1, COUNT)
    assert said in given_up["cause"]


def test_a_later_start_does_not_give_up_more(stuck: Path) -> None:
    run(stuck, restore="latest", give_up_output_of="out@1")
    with pytest.raises(rt.ConfigurationError, match="leave it out once the job is past checkpoint"):
        run(stuck, restore="latest", give_up_output_of="out@1")


def test_once_the_target_is_mended_nothing_is_lost(stuck: Path) -> None:
    (stuck / "refuses").unlink()
    run(stuck, restore="latest")
    assert written(stuck / "out") == written(stuck / "too") == list(range(COUNT))
