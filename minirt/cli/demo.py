"""`minirt demo`: real input, workers killed under way, and Spark's verdict on what came out."""

from __future__ import annotations

import json as json_format
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.cli.arguments import StorageOption
from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from minirt_connectors.flights.demo import DemoInput, DemoRun, Plan


class DemoMode(StrEnum):
    """The modes that `--mode` offers."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at_least_once"
    ALL = "all"


def demo(
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the figures there; - for standard output."),
    ] = None,
    mode: Annotated[DemoMode, typer.Option(help="Which checkpoint mode to show.")] = DemoMode.ALL,
    kills: Annotated[int, typer.Option(min=0, help="Workers to kill in each run.")] = 2,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="How long the slow stage takes in all, but for replays.")
    ] = 12.0,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Only so many flights; all 336,776 by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draw the same victims and pauses as another run did.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep output and checkpoints in this new or empty folder."
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Keep them there, such as s3://bucket/new-prefix."),
    ] = None,
    storage_option: StorageOption = None,
) -> None:
    """Replay the flights of New York 2013, kill workers of the job, have Spark verify the output.

    Runs once in each checkpoint mode. The exit status is 0 if nothing was lost and, in a mode that
    promises so, nothing was duplicated or wrong; otherwise it is 1.
    """
    from minirt.cli.console import console
    from minirt_connectors.flights.demo import MODES, Plan

    _refuse_unwritable(json)
    modes = MODES if mode is DemoMode.ALL else (str(mode),)
    plans = [Plan(each, kills, seconds, seed) for each in modes]
    out = console(stderr=json == "-")
    options = _storage_options(storage, storage_option, keep)
    with _folder(keep) as folder:
        root = str(folder) if storage is None else storage.rstrip("/")
        demo, spark = _prepare(out, folder / "flights", plans, rows)
        runs = [_run_one(out, f"{root}/{plan.mode}", options, plan, demo, spark) for plan in plans]
    if storage is not None or keep is not None:
        out.print(f"Kept in {root}. Look at it with")
        for plan in plans:
            out.print(f"  minirt checkpoints list {root}/{plan.mode}/checkpoints")
    _write(json, {"runs": [run.to_plain() for run in runs]})
    if not all(run.passed for run in runs):
        raise typer.Exit(1)


def _prepare(
    out: Console, folder: Path, plans: Sequence[Plan], rows: int | None
) -> tuple[DemoInput, SparkSession]:
    from minirt_connectors.flights.demo import PARALLELISM, prepare
    from minirt_connectors.spark import local_session

    out.print(
        "Spark starts, writes down the flights for replay, and computes what must come out ..."
    )
    spark = local_session("minirt-demo")
    demo = prepare(spark, folder, rows)
    out.print(
        f"{demo.rows:,} flights, {demo.results:,} results expected. Each job: parallelism "
        f"{PARALLELISM}, a slow stage, a checkpoint every second, {plans[0].kills} workers killed."
    )
    return demo, spark


def _run_one(
    out: Console,
    root: str,
    options: Mapping[str, Any],
    plan: Plan,
    demo: DemoInput,
    spark: SparkSession,
) -> DemoRun:
    from minirt.cli.checkpoint_table import print_checkpoints
    from minirt.cli.live_line import LiveLine
    from minirt_connectors.flights.demo import run_job, verify_output

    out.print(f"\n{plan.mode}")
    line = LiveLine(out.file)
    with line.logging():
        try:
            ended = run_job(
                demo,
                plan,
                root,
                storage_options=options,
                show=lambda figures: line.update(f"  {figures}"),
                on_kill=lambda kill: line.say(f"  {kill}"),
            )
        finally:
            line.close()
    out.print(f"  {ended}")
    print_checkpoints("checkpoints", ended.result.checkpoints, stderr=out.stderr)
    out.print("Spark compares the committed output with what it computed itself ...")
    run = verify_output(spark, demo, ended)
    out.print(f"{run.verdict}\n{run.conclusion}")
    return run


def _storage_options(
    storage: str | None, given: Sequence[str] | None, keep: Path | None
) -> dict[str, Any]:
    """The options of --storage, after a check that its place is empty and writable."""
    from minirt.settings.build import read_storage_options
    from minirt.storage.store import ObjectStore

    if storage is None:
        if given:
            raise ConfigurationError("--storage-option has no effect without --storage")
        return {}
    if keep is not None:
        raise ConfigurationError("--keep has no effect with --storage")
    options = read_storage_options(given or ())
    store = ObjectStore(storage, options)
    if store.list():
        raise ConfigurationError(f"--storage: {storage} is not empty")
    store.write("probe", b"")
    store.delete("probe")
    return options


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """`keep`, which must be new or empty, or a temporary folder that is removed in the end."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="minirt-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        empty = not any(keep.iterdir())
    except OSError as error:
        raise ConfigurationError(f"--keep: cannot use {keep} ({error.strerror})") from error
    if not empty:
        raise ConfigurationError(f"--keep: {keep} is not empty")
    yield keep


def _refuse_unwritable(json: str | None) -> None:
    """Check at once that --json can be written, not after the run."""
    if json in (None, "-"):
        return
    assert json is not None
    path = Path(json)
    target = path if path.exists() else path.absolute().parent
    if path.is_dir() or not os.access(target, os.W_OK):
        raise ConfigurationError(f"--json: cannot write {json}")


def _write(json: str | None, figures: dict[str, Any]) -> None:
    if json is None:
        return
    text = json_format.dumps(figures, indent=2) + "\n"
    if json == "-":
        sys.stdout.write(text)
    else:
        Path(json).write_text(text)
