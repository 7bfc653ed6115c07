"""Several jobs, and several runs of one, that write into one folder, or collect into one list."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.io import target_folder
from minirt.io.target_folder import LocalFolder
from minirt.operators.common.calling import EndOfProcess
from minirt.storage.manifests import decode_manifest, encode_manifest


class PowerCut(EndOfProcess):
    """The program is gone."""


def job(name: str, out: Path, parallelism: int = 1, **options: Any) -> rt.Environment:
    """All jobs are alike, up to the labels of their operators."""
    env = rt.Environment("job", parallelism=parallelism)
    numbers = env.source(rt.SequenceSource(5), uid="numbers")
    records = numbers.map(lambda n: {"job": name, "n": n})
    records.sink(rt.JsonlSink(out, existing="append", **options), uid="out")
    return env


def rows(out: Path) -> list[tuple[str, int]]:
    lines = [line for file in out.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted((row["job"], row["n"]) for row in map(json.loads, lines))


def expected(*names: str) -> list[tuple[str, int]]:
    return sorted((name, n) for name in names for n in range(5))


def checkpoints(folder: Path) -> rt.Checkpointing:
    return rt.Checkpointing(folder, interval="1h")


def crash_before_the_commit(env: rt.Environment, storage: Path) -> None:
    """Its last checkpoint is complete, and nothing of it is visible."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFolder, "publish", _cut)
        with pytest.raises(PowerCut):
            env.execute(checkpointing=checkpoints(storage), runner="inline")


def _cut(*args: Any) -> None:
    raise PowerCut


def without_checkpoints(out: Path, base: Path) -> None:
    job("b", out).execute(runner="inline")


def with_other_checkpoints(out: Path, base: Path) -> None:
    for _ in range(3):  # Its generations are higher than those of the one that crashed.
        job("b", out).execute(
            checkpointing=checkpoints(base / "b"), restore="latest", runner="inline"
        )


def in_workers(out: Path, base: Path) -> None:
    job("b", out).execute()


def with_a_copy_of_the_checkpoints(out: Path, base: Path) -> None:
    shutil.copytree(base / "a", base / "b")
    job("b", out).execute(checkpointing=checkpoints(base / "b"), restore="none", runner="inline")


def on_another_machine(out: Path, base: Path) -> None:
    """Which calls its storage just the same."""
    (base / "a").rename(base / "of the first machine")
    job("b", out).execute(checkpointing=checkpoints(base / "a"), runner="inline")
    shutil.rmtree(base / "a")
    (base / "of the first machine").rename(base / "a")


@pytest.mark.parametrize(
    "disturb",
    [
        without_checkpoints,
        with_other_checkpoints,
        in_workers,
        with_a_copy_of_the_checkpoints,
        on_another_machine,
    ],
)
def test_a_job_finds_its_pending_output_whoever_wrote_into_the_folder_meanwhile(
    disturb: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    crash_before_the_commit(job("a", out), tmp_path / "a")
    assert rows(out) == []
    disturb(out, tmp_path)
    assert rows(out) == expected("b")
    job("a", out).execute(
        checkpointing=checkpoints(tmp_path / "a"), restore="latest", runner="inline"
    )
    assert rows(out) == expected("a", "b")
    assert not (out / "_minirt").exists()


def test_a_job_that_starts_again_removes_what_it_has_left_itself(tmp_path: Path) -> None:
    out = tmp_path / "out"
    crash_before_the_commit(job("a", out), tmp_path / "a")
    assert list(out.glob("_minirt/*/*"))
    job("a", out).execute(
        checkpointing=checkpoints(tmp_path / "a"), restore="none", runner="inline"
    )
    assert rows(out) == expected("a")
    assert not (out / "_minirt").exists()


def test_a_job_without_checkpoints_removes_what_its_earlier_attempts_have_left(
    tmp_path: Path,
) -> None:
    out, flag = tmp_path / "out", tmp_path / "stumbled"

    def stumble(n: int) -> dict[str, Any]:
        if n == 4 and not flag.exists():
            flag.touch()
            raise RuntimeError("stumbled")
        return {"job": "a", "n": n}

    env = rt.Environment("job")
    numbers = env.source(rt.SequenceSource(5), uid="numbers")
    numbers.map(stumble).sink(rt.JsonlSink(out, roll_bytes=1), uid="out")
    env.execute(runner="inline", restart=rt.Restart.fixed_delay(1, 0))
    assert rows(out) == expected("a")
    assert not (out / "_minirt").exists()


def test_a_folder_that_another_job_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, removed = target_folder.make_folder, list[str]()

    def make_and_lose(folder: str) -> None:
        make(folder)
        if not removed:
            removed.append(folder)
            LocalFolder().remove_pending(folder, lambda path: False)

    monkeypatch.setattr(target_folder, "make_folder", make_and_lose)
    job("a", tmp_path / "out").execute(runner="inline")
    assert len(removed) == 1
    assert rows(tmp_path / "out") == expected("a")


@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_environment_that_runs_twice_collects_the_rows_of_both_runs(
    checkpointed: bool, tmp_path: Path
) -> None:
    out = rt.CollectSink()
    env = rt.Environment("job")
    env.source(rt.SequenceSource(3), uid="numbers").sink(out, uid="out")
    checkpointing = checkpoints(tmp_path) if checkpointed else None
    for runs in (1, 2, 3):
        restore = "none" if checkpointed else None
        env.execute(checkpointing=checkpointing, restore=restore, runner="inline")
        assert sorted(out.rows) == sorted([*range(3)] * runs)
    if checkpointed:
        env.execute(checkpointing=checkpointing, restore="latest", runner="inline")
        assert sorted(out.rows) == sorted([*range(3)] * 3)


def test_a_job_that_runs_again_from_the_beginning_says_that_there_is_output_already(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, storage = tmp_path / "out", tmp_path / "checkpoints"

    def run(existing: Any, restore: str | None = None) -> None:
        env = rt.Environment("job")
        numbers = env.source(rt.SequenceSource(5), uid="numbers")
        records = numbers.map(lambda n: {"job": "a", "n": n})
        records.sink(rt.JsonlSink(out, existing=existing), uid="out")
        checkpointing = None if restore is None else checkpoints(storage)
        env.execute(checkpointing=checkpointing, restore=restore, runner="inline")

    with caplog.at_level(logging.WARNING):
        run("refuse")
        run("append")
        run("append", "latest")
        run("refuse", "latest")
        assert caplog.text == ""
        run("warn")
        assert f"{out} holds output already" in caplog.text
        caplog.clear()
        run("warn", "none")
        assert f"{out} holds output already" in caplog.text
    before = rows(out)
    for restore in (None, "none"):
        with pytest.raises(rt.ConfigurationError, match=r"holds output already.*another folder"):
            run("refuse", restore)
    assert rows(out) == before


def test_a_job_shows_what_its_sinks_held_back_at_its_end(tmp_path: Path) -> None:
    env = rt.Environment("job", parallelism=2)
    numbers = env.source(rt.SequenceSource(300, splits=2), uid="numbers")
    records = numbers.map(_slowly)
    sink = rt.JsonlSink(tmp_path / "out", roll_interval="1h", partition_by="half")
    records.sink(sink, uid="out")
    checkpointing = rt.Checkpointing(tmp_path / "checkpoints", interval="20ms")
    result = env.execute(checkpointing=checkpointing, runner="inline")
    assert result.completed_checkpoints > 3
    files = list((tmp_path / "out").rglob("*.jsonl"))
    assert len(files) <= 4
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == [*range(300)]
    assert not (tmp_path / "out" / "_minirt").exists()


def test_a_savepoint_shows_what_was_held_back_wherever_a_job_goes_on(tmp_path: Path) -> None:
    def start(name: str, restore: Any = None) -> rt.Job:
        env = rt.Environment("job")
        numbers = env.source(rt.SequenceSource.endless(), uid="numbers")
        sink = rt.JsonlSink(tmp_path / "out", roll_interval="1h", existing="append")
        numbers.map(_slowly).sink(sink, uid="out")
        checkpointing = rt.Checkpointing(tmp_path / name, interval="50ms")
        return env.start(checkpointing=checkpointing, restore=restore)

    first, until = start("first"), time.monotonic() + 60
    while not list(tmp_path.glob("out/_minirt/*/*")) and time.monotonic() < until:
        time.sleep(0.05)
    assert not list((tmp_path / "out").glob("*.jsonl"))
    savepoint = first.stop(tmp_path / "savepoint")
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 1
    second = start("second", savepoint.path)
    second.drain()
    lines = [
        line
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    found = sorted(json.loads(line)["n"] for line in lines)
    assert found == [*range(len(found))]
    assert found
    assert not (tmp_path / "out" / "_minirt").exists()


def _slowly(n: int) -> dict[str, Any]:
    time.sleep(0.001)
    return {"n": n, "half": n % 2}


def test_a_checkpoint_of_minirt_0_1_is_committed_from_where_its_output_waits(
    tmp_path: Path,
) -> None:
    """There, pending files were in a folder named by a hash of the operator's label."""
    out = tmp_path / "out"
    crash_before_the_commit(job("a", out), tmp_path / "a")
    (new,) = out.glob("_minirt/*")
    label = "JsonlSink (uid out)"
    old = f"JsonlSink-uid-out-{blake2b(label.encode(), digest_size=4).hexdigest()}"
    new.rename(new.with_name(old))
    (tmp_path / "a" / "generations" / "identity").unlink()
    _rewrite_manifest(tmp_path / "a", new.name, old)
    job("a", out).execute(
        checkpointing=checkpoints(tmp_path / "a"), restore="latest", runner="inline"
    )
    assert rows(out) == expected("a")
    assert not (out / "_minirt").exists()


def _rewrite_manifest(storage: Path, name: str, other: str) -> None:
    (path,) = storage.glob("manifests/*")
    manifest = decode_manifest(path.read_bytes(), str(path))
    moved = tuple(
        replace(
            held,
            handles=tuple(
                {**handle, "pending": handle["pending"].replace(name, other)}
                for handle in held.handles
            ),
        )
        for held in manifest.sink_handles
    )
    path.write_bytes(b"".join(encode_manifest(replace(manifest, sink_handles=moved))))


def test_a_crafted_checkpoint_moves_nothing_and_fails_the_job(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "x-1-y"
    victim.write_text("kept")
    crash_before_the_commit(job("a", out), tmp_path / "a")
    (pending,) = out.glob("_minirt/*/*")
    _rewrite_manifest(tmp_path / "a", str(pending), str(victim))
    with pytest.raises(rt.MinirtError, match="was not made by a file sink"):
        job("a", out).execute(
            checkpointing=checkpoints(tmp_path / "a"), restore="latest", runner="inline"
        )
    assert victim.read_text() == "kept"
    assert pending.exists()


def test_a_job_that_writes_elsewhere_after_a_restore_loses_nothing_in_silence(
    tmp_path: Path,
) -> None:
    storage, old, new = tmp_path / "a", tmp_path / "old", tmp_path / "new"
    crash_before_the_commit(job("a", old), storage)
    with pytest.raises(rt.MinirtError, match=r"waits in .*old, but the sink writes into .*new"):
        job("a", new).execute(checkpointing=checkpoints(storage), restore="latest", runner="inline")
    job("a", old).execute(checkpointing=checkpoints(storage), restore="latest", runner="inline")
    assert rows(old) == expected("a")
    job("a", new).execute(checkpointing=checkpoints(storage), restore="latest", runner="inline")
    assert rows(new) == []
