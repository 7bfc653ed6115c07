"""What a job may start from: at another parallelism, without some state, from a checkpoint elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    ConfigurationError,
    Environment,
    JobFailedError,
    JsonlSink,
    Limits,
    Options,
    Restart,
)
from minirt.config import DEFAULT_MAX_PARALLELISM
from minirt.protocol.manifest import restore_candidates
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.runtime.campaign import compare, read_files, write_files
from tests.runtime.jobs import CASES, KEYS, Ledger, build, numbers_of

COUNT = 600
ALL_TO_FILES = Options(limits=Limits(inline_snapshot_bytes=0))
RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]


def stored(folder: Path) -> CheckpointStorage:
    return CheckpointStorage(ObjectStore(str(folder / "checkpoints")), 0)


def checkpoints(folder: Path) -> Checkpointing:
    return Checkpointing(str(folder / "checkpoints"), interval="10ms", retain=100)


def run_until(
    stop_at: int | None,
    folder: Path,
    *,
    case: str = "keyed",
    parallelism: int = 2,
    max_parallelism: int = DEFAULT_MAX_PARALLELISM,
    per_second: float = 3000,
    **settings: Any,
) -> None:
    """The case, which fails for good once a source beside it has reached `stop_at`, if given."""
    env = Environment(case, parallelism=parallelism, max_parallelism=max_parallelism)
    outputs = build(CASES[case], env, COUNT, per_second=per_second)
    # The one that must fail is endless: it goes on until it may.
    end = COUNT if stop_at is None else None
    watch = numbers_of(env, end, f"{case}-watch", per_second=per_second)
    watched = watch.map(lambda n: {"n": _below(n, stop_at, folder)})
    write_files({**outputs, "watch": watched}, folder)
    defaults = {"runner": "inline", "checkpointing": checkpoints(folder), "restart": Restart.none()}
    env.execute(**{**defaults, **settings})


def _below(n: int, limit: int | None, folder: Path) -> int:
    """Fails at the limit, or behind it on a machine too busy to have taken two checkpoints by then."""
    manifests = folder / "checkpoints" / "manifests"
    if limit is not None and n >= limit and len(list(manifests.glob("*"))) >= 2:
        raise RuntimeError("far enough")
    return n


def fail_at(stop_at: int, folder: Path, **settings: Any) -> None:
    with pytest.raises(JobFailedError, match="far enough"):
        run_until(stop_at, folder, **settings)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("case", ["keyed", "postponed", "connected"])
def test_state_timers_and_splits_move_to_any_parallelism(runner, case, tmp_path):
    steps = [(2, 150, None), (3, 300, "latest"), (1, 450, "latest")]
    for parallelism, stop_at, restore in steps if runner == "inline" else steps[:1]:
        fail_at(
            stop_at, tmp_path, case=case, parallelism=parallelism, restore=restore, runner=runner
        )
    run_until(None, tmp_path, case=case, parallelism=5, restore="latest", runner=runner)
    assert compare(CASES[case], COUNT, 5, tmp_path) == (0, 0)


def test_more_subtasks_than_key_groups_that_hold_anything_are_fine(tmp_path):
    fail_at(200, tmp_path, max_parallelism=5)
    run_until(None, tmp_path, max_parallelism=5, parallelism=5, restore="latest")
    assert compare(CASES["keyed"], COUNT, 5, tmp_path) == (0, 0)


def test_another_max_parallelism_is_refused(tmp_path):
    fail_at(200, tmp_path)
    with pytest.raises(
        ConfigurationError, match="max_parallelism 128 and cannot be restored with 64"
    ):
        run_until(None, tmp_path, max_parallelism=64, restore="latest")


def test_without_being_told_a_job_neither_continues_nor_starts_over(tmp_path):
    fail_at(200, tmp_path)
    with pytest.raises(ConfigurationError, match='restore="latest"'):
        run_until(None, tmp_path)


def test_a_job_told_to_start_over_forgets_its_state(tmp_path):
    fail_at(200, tmp_path)
    shutil.rmtree(tmp_path / "ledger")
    run_until(None, tmp_path, restore="none")
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


@pytest.mark.parametrize("by", ["id", "path", "copy"])
def test_a_job_continues_from_the_checkpoint_that_it_is_given(by, tmp_path):
    fail_at(300, tmp_path)
    folder, copy = tmp_path / "checkpoints", tmp_path / "elsewhere"
    restore: str | int = str(folder)
    if by == "id":
        restore = stored(tmp_path).manifest_keys()[-1].checkpoint_id
    elif by == "copy":
        shutil.move(folder, copy)
        restore = str(copy)
    run_until(None, tmp_path, restore=restore)
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


def test_from_an_older_checkpoint_all_that_came_after_it_is_put_out_again(tmp_path):
    fail_at(300, tmp_path, per_second=600)
    storage = stored(tmp_path)
    oldest, second = storage.manifest_keys()[:2]
    run_until(None, tmp_path, restore=oldest.checkpoint_id)
    lost, duplicated = compare(CASES["keyed"], COUNT, 2, tmp_path)
    assert lost == 0
    assert duplicated > 0
    assert second not in restore_candidates(storage.manifest_keys(), storage.claims())


def test_state_that_belongs_to_no_operator_must_be_given_up_explicitly(tmp_path):
    fail_at(200, tmp_path)

    def renamed(**settings: Any) -> None:
        env = Environment("keyed", parallelism=2)
        stream = numbers_of(env, COUNT, "keyed-numbers", per_second=None)
        ledger = stream.key_by(lambda n: n % KEYS).process(Ledger(), uid="renamed")
        ledger.sink(JsonlSink(tmp_path / "again"), uid="again")
        env.execute(
            runner="inline", checkpointing=checkpoints(tmp_path), restore="latest", **settings
        )

    with pytest.raises(ConfigurationError, match="holds state of 'keyed-watch', 'ledger'"):
        renamed()
    renamed(allow_non_restored_state=True)
    first = min(row["seq"] for row in read_files(tmp_path / "again") if "seq" in row)
    assert first == 1
    assert len(read_files(tmp_path / "again")) < len(
        CASES["keyed"].expected(range(COUNT), 2)["ledger"]
    )


def damage_newest(folder: Path) -> str:
    """Change one byte in a snapshot of the newest checkpoint, which does not change its size."""
    storage = stored(folder)
    snapshot = storage.read_manifest(storage.manifest_keys()[-1]).snapshots[0]
    part = folder / "checkpoints" / str(snapshot.path)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    return str(part)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_damaged_part_is_told_and_not_restored_over_and_over(runner, tmp_path):
    fail_at(300, tmp_path, per_second=600, options=ALL_TO_FILES)
    part = damage_newest(tmp_path)
    with pytest.raises(JobFailedError, match="checksum") as failure:
        run_until(None, tmp_path, restore="latest", runner=runner, restart=Restart.fixed_delay())
    assert part in str(failure.value)


@pytest.mark.parametrize("runner", RUNNERS)
def test_with_a_fallback_allowed_the_checkpoint_before_the_damaged_one_is_restored(
    runner, tmp_path
):
    fail_at(300, tmp_path, per_second=600, options=ALL_TO_FILES)
    damage_newest(tmp_path)
    run_until(
        None,
        tmp_path,
        restore="latest",
        runner=runner,
        allow_restore_fallback=True,
        restart=Restart.fixed_delay(1, "10ms"),
    )
    assert compare(CASES["keyed"], COUNT, 2, tmp_path)[0] == 0
