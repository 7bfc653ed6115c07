"""`minirt checkpoints list`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import minirt as rt

if TYPE_CHECKING:
    from tests.cli.conftest import Call


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """What a job of one checkpoint has stored."""
    folder = tmp_path / "checkpoints"
    run(folder)
    return folder


def run(folder: Path, restore: str | None = None) -> None:
    env = rt.Environment("numbers")
    env.source(rt.SequenceSource(10)).sink(rt.DiscardSink())
    env.execute(runner="inline", checkpointing=rt.Checkpointing(str(folder)), restore=restore)


def manifests(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "manifests").rglob("*") if path.is_file())


def test_the_table_shows_the_figures_of_a_checkpoint(call: Call, storage: Path) -> None:
    called = call("checkpoints", "list", str(storage))
    assert called.status == 0
    head, row = (line for line in called.out.splitlines() if " ms" in line or "alignment" in line)
    for column in ("id", "generation", "status", "duration", "alignment", "start delay", "bytes"):
        assert column in head
    assert row.split()[:3] == ["1", "1", "final"]
    assert row.rstrip().endswith("kept")


def test_json_has_what_the_history_remembers(call: Call, storage: Path) -> None:
    called = call("checkpoints", "list", str(storage), "--json")
    assert called.status == 0
    [entry] = json.loads(called.out)
    assert (entry["checkpoint_id"], entry["generation"], entry["kind"]) == (1, 1, "final")
    assert (entry["status"], entry["stored"]) == ("completed", "kept")
    assert entry["bytes"] > 0
    assert {"alignment_s", "start_delay_s", "sync_s", "async_s"} <= entry["subtasks"][0].keys()


def test_a_checkpoint_that_the_history_does_not_know_is_listed_all_the_same(
    call: Call, storage: Path
) -> None:
    before = json.loads(call("checkpoints", "list", str(storage), "--json").out)
    for path in (storage / "history").rglob("*"):
        path.unlink()
    assert json.loads(call("checkpoints", "list", str(storage), "--json").out) == before


def test_a_checkpoint_without_manifest_is_deleted(call: Call, storage: Path) -> None:
    for path in manifests(storage):
        path.unlink()
    [entry] = json.loads(call("checkpoints", "list", str(storage), "--json").out)
    assert entry["stored"] == "deleted"


@pytest.mark.parametrize("kind", ["missing", "empty", "foreign", "file"])
def test_a_place_without_checkpoints_is_a_wrong_call(call: Call, tmp_path: Path, kind: str) -> None:
    place = tmp_path / kind
    if kind == "file":
        place.write_text("text")
    elif kind != "missing":
        place.mkdir()
    if kind == "foreign":
        (place / "photo.jpg").write_bytes(b"\xff\xd8")
        (place / "manifests").mkdir()
        (place / "manifests" / "readme.txt").write_text("not ours")
    for options in ([], ["--json"]):
        called = call("checkpoints", "list", str(place), *options)
        assert called.status == 2
        assert called.out == ""
        assert called.err == f"minirt: error: {place} holds no checkpoints\n"
    assert place.exists() == (kind != "missing")


def test_a_damaged_manifest_is_one_line_and_another_status(call: Call, storage: Path) -> None:
    for path in (storage / "history").rglob("*"):
        path.unlink()
    [manifest] = manifests(storage)
    manifest.write_bytes(manifest.read_bytes()[:-5])
    called = call("checkpoints", "list", str(storage))
    assert called.status == 1
    assert str(manifest) in called.err
    assert called.err.count("\n") == 1


@pytest.mark.processes
def test_a_savepoint_is_shown_as_one(call: Call, tmp_path: Path) -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource.endless(), uid="numbers").sink(rt.DiscardSink(), uid="out")
    folder = tmp_path / "checkpoints"
    env.start(checkpointing=rt.Checkpointing(folder, interval="1h")).stop(tmp_path / "copy")
    assert " completed " in call("checkpoints", "list", str(folder)).out
    assert " savepoint " in call("checkpoints", "list", str(tmp_path / "copy")).out
