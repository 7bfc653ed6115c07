"""Every command that reads a storage, on jobs of every shape, in every state that users leave them in."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import minirt as rt
from minirt import Environment, Stream

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Called

Build = Callable[[Environment, Path], None]


def _numbers(env: Environment, **options: object) -> Stream:
    return env.source(rt.SequenceSource(40), **options)  # type: ignore[arg-type]


def no_uid(env: Environment, folder: Path) -> None:
    """A chain of its own without state: what `minirt new` makes."""
    numbers = _numbers(env, parallelism=1)
    numbers.map(lambda n: {"n": n}).rebalance().filter(lambda row: row["n"] % 3 > 0).key_by(
        "n"
    ).reduce(lambda a, b: b).sink(rt.JsonlSink(folder / "out"))


def no_state(env: Environment, folder: Path) -> None:
    _numbers(env, uid="n").rebalance().map(lambda n: n).rebalance().sink(rt.DiscardSink(), uid="o")


def several_sinks(env: Environment, folder: Path) -> None:
    numbers = _numbers(env, uid="n").map(lambda n: {"n": n}, uid="m")
    numbers.sink(rt.JsonlSink(folder / "a"), uid="first")
    numbers.sink(rt.JsonlSink(folder / "b"), uid="second")
    numbers.sink(rt.DiscardSink(), uid="third")


class Sides(rt.Process):
    def process(self, record, ctx):
        if record % 2:
            ctx.side("odd numbers", record)
        yield record


def side_outputs(env: Environment, folder: Path) -> None:
    passed = _numbers(env, uid="n").process(Sides(), uid="split", chain=False)
    passed.sink(rt.DiscardSink(), uid="o")
    passed.side_output("odd numbers").sink(rt.JsonlSink(folder / "odd"), uid="odd")


def columns(env: Environment, folder: Path) -> None:
    rows = _numbers(env, uid="n").map(lambda n: {"k": n % 3, "v": float(n)}, uid="m")
    rows.key_by("k").aggregate(rt.Sum("v"), uid="sums").sink(
        rt.ParquetSink(folder / "out"), uid="o"
    )


def names_with_blanks(env: Environment, folder: Path) -> None:
    numbers = _numbers(env, uid="all-the-numbers", name="the source")
    numbers.key_by(lambda n: n % 5).reduce(max, uid="greatest", name="größtes > b").sink(
        rt.DiscardSink(), uid="mode-live", name="[x] mode=live {y}"
    )


BUILDS = (no_uid, no_state, several_sinks, side_outputs, columns, names_with_blanks)
SHAPES: dict[str, Build] = {build.__name__: build for build in BUILDS}

STATES = ("nothing", "empty", "finished", "stopped", "failed", "savepoint only")


class _FailsOnce(Exception):
    pass


def _poison(n: object) -> object:
    raise _FailsOnce


def left_behind(folder: Path, shape: Build, state: str) -> Path:
    """The storage that a job of this shape has left in this state."""
    storage = folder / "checkpoints"
    if state == "nothing":
        return storage
    if state == "empty":
        storage.mkdir()
        return storage
    env = rt.Environment("My Job: a=b", parallelism=2)
    shape(env, folder)
    checkpointing = rt.Checkpointing(storage, interval="20ms", min_pause="5ms")
    if state == "failed":
        env.source(rt.SequenceSource(1), uid="poison").map(_poison, uid="p").sink(
            rt.DiscardSink(), uid="po"
        )
        with pytest.raises(rt.JobFailedError):
            env.execute(checkpointing=checkpointing, restart=rt.Restart.none(), runner="inline")
        return storage
    if state == "finished":
        env.execute(checkpointing=checkpointing, runner="inline")
        return storage
    saved = folder / "saved"
    env.source(rt.SequenceSource.endless(), uid="endless").sink(rt.DiscardSink(), uid="eo")
    job = env.start(checkpointing=checkpointing)
    job.stop(str(saved) if state == "savepoint only" else None, timeout=60)
    return saved if state == "savepoint only" else storage


COMMANDS = (
    "checkpoints list {storage}",
    "checkpoints list {storage} --json",
    "checkpoints show {storage}",
    "checkpoints show {storage} --handles",
    "checkpoints show {storage} --json",
    "checkpoints show {storage} 1",
    "checkpoints verify {storage}",
    "checkpoints verify {storage} --json",
    "checkpoints diff {storage} latest",
    "checkpoints diff {storage} latest latest --json",
    "checkpoints export {storage} --to {folder}/export-{number}.jsonl",
    "checkpoints export {storage} --what splits --to {folder}/export-{number}.parquet",
    "checkpoints export {storage} --what in-flight --to {folder}/export-{number}.jsonl",
    "checkpoints picture {storage} --svg {folder}/picture-{number}.svg",
    "checkpoints picture {storage} --json",
    "history {storage}",
    "history {storage} --json",
    "advise {storage}",
    "advise {storage} --json",
    "jobs",
    "checkpoints delete {storage} latest --yes",
    "checkpoints delete {storage} latest --yes --force --json",
)


def assert_answered(called: Called, command: str) -> None:
    """The command has printed what was asked for, or one line that says why not."""
    told = f"{command}: {called}"
    assert "Traceback" not in called.err, told
    if "--json" not in command:  # There a cause may be told as a whole.
        assert "Traceback" not in called.out, told
    assert called.status in (0, 1, 2), told
    if called.status != 0 and not called.out:
        assert called.err.startswith("minirt: error: "), told
        assert called.err.count("\n") == 1, told
    if called.status == 0 and "--json" in command:
        json.loads(called.out)
    assert "None" not in called.err, told


@pytest.mark.processes
@pytest.mark.parametrize(
    ("shape", "state"),
    [
        *((shape, "finished") for shape in SHAPES),
        *(("no_uid", state) for state in STATES if state != "finished"),
        *itertools.product(("names_with_blanks", "several_sinks"), ("stopped", "savepoint only")),
        ("columns", "failed"),
    ],
)
def test_every_command_answers(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, state: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    os.mkdir(tmp_path / "runtime", 0o700)
    storage = left_behind(tmp_path, SHAPES[shape], state)
    for number, command in enumerate(COMMANDS):
        words = command.format(
            storage=shlex.quote(str(storage)), folder=shlex.quote(str(tmp_path)), number=number
        )
        assert_answered(call(*shlex.split(words)), command)
