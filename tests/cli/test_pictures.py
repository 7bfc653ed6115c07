"""`minirt checkpoints picture`, `minirt simulate` and `minirt advise`, as people call them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import minirt as rt

if TYPE_CHECKING:
    from tests.cli.conftest import Call

JOB = """
import minirt as rt
env = rt.Environment("sums", parallelism=2)
numbers = env.source(rt.SequenceSource(COUNT), uid="numbers")
sums = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b, uid="sums")
sums.sink(rt.JsonlSink("out"), uid="out")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "job.py").write_text(JOB.replace("COUNT", "300"))
    (tmp_path / "endless.py").write_text(
        JOB.replace("Source(COUNT)", "Source.endless()").replace("sums", "endless")
    )
    yield tmp_path
    sys.modules.pop("__minirt_job__", None)


def run(storage: str, trace: bool) -> None:
    env = rt.Environment("sums")
    numbers = env.source(rt.SequenceSource(500), uid="numbers").key_by(lambda n: n % 2)
    numbers.reduce(max, uid="total").sink(rt.DiscardSink(), uid="out")
    env.execute(
        runner="inline",
        checkpointing=rt.Checkpointing(storage),
        options=rt.Options(trace=trace),
    )


def test_a_checkpoint_of_a_traced_job_is_drawn_into_all_files(call: Call, folder: Path) -> None:
    run("stored", trace=True)
    files = ("--html", "a.html", "--svg", "a.svg", "--perfetto", "a.json")
    called = call("checkpoints", "picture", "stored", *files)
    assert called.status == 0, called.err
    assert called.out.startswith("final checkpoint 1 of sums, aligned\n  The checkpoint took ")
    assert called.out.endswith("written: a.html\nwritten: a.svg\nwritten: a.json\n")
    assert '<svg class="timeline"' in Path("a.html").read_text()
    ElementTree.parse("a.svg")
    assert json.loads(Path("a.json").read_text())["traceEvents"]
    path = json.loads(call("checkpoints", "picture", "stored", "1", "--json").out)["path"]
    assert path[-1]["kind"] == "manifest"


def test_a_job_that_was_not_traced_says_how_it_can_be(call: Call, folder: Path) -> None:
    run("stored", trace=False)
    called = call("checkpoints", "picture", "stored")
    assert called.status == 2
    assert "--set options.trace=true" in called.err


def test_two_modes_are_simulated_side_by_side_and_nothing_is_written_by_sinks(
    call: Call, folder: Path
) -> None:
    modes = ("--mode", "aligned", "--mode", "unaligned")
    first = call("simulate", "job.py", "--seed", "3", *modes, "--picture", "--html", "both.html")
    assert first.status == 0, first.err
    assert "mode aligned, seed 3: " in first.out
    assert "mode unaligned, seed 3: " in first.out
    assert Path("both.html").read_text().count('<svg class="timeline"') == 2
    assert not Path("out").exists()
    again = call("simulate", "job.py", "--seed", "3", *modes, "--picture", "--html", "again.html")
    assert Path("again.html").read_text() == Path("both.html").read_text()
    assert again.out.splitlines()[:-1] == first.out.splitlines()[:-1]


def test_checkpoints_of_local_snapshots_are_drawn_beside_those_with_barriers(
    call: Call, folder: Path
) -> None:
    modes = ("--mode", "aligned", "--mode", "uncoordinated")
    options = ("--seed", "3", "--checkpoints", "4", "--picture", "--html", "both.html")
    called = call("simulate", "endless.py", *modes, *options)
    assert called.status == 0, called.err
    assert "It is made of the newest local snapshots that fit together" in called.out
    text = Path("both.html").read_text()
    assert text.count('<svg class="timeline"') == 2
    assert 'class="mark begun"' in text


def test_a_job_without_end_is_simulated_until_there_are_enough_checkpoints(
    call: Call, folder: Path
) -> None:
    called = call("simulate", "endless.py", "--checkpoints", "2", "--steps")
    assert called.status == 0, called.err
    assert "2 checkpoints completed, 0 failed" in called.out
    assert "on_reached" in called.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--html a.html", "--html has no effect without --picture"),
        ("--checkpoint 1", "--checkpoint has no effect without --picture"),
        ("--picture --svg a.svg --mode aligned --mode unaligned", "--svg holds one picture"),
        ("--picture --checkpoint 99", "no checkpoint 99"),
        ("--mode alinged", "alinged"),
    ],
)
def test_wrong_calls_of_the_simulator(call: Call, folder: Path, options: str, says: str) -> None:
    called = call("simulate", "job.py", *options.split())
    assert called.status == 2
    assert says in called.err


def test_advice_on_a_storage_with_nothing_wrong(call: Call, folder: Path) -> None:
    run("stored", trace=False)
    called = call("advise", "stored")
    assert called.status == 0
    assert called.out.startswith("nothing to advise\nknown: 0 of 0 checkpoints completed")
    assert json.loads(call("advise", "stored", "--json").out) == []
    assert "no jobs are running" in call("advise", "sums").err
