"""`minirt demo`: real input, processes killed under way, and Spark's verdict on what came out."""

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
    from rich.console import Console

    from minirt_connectors.flights.demo import DemoInput, DemoRun, Plan
    from minirt_connectors.flights.kafka_demo import KafkaRun
    from minirt_connectors.flights.place import Place
    from minirt_connectors.flights.processes import Mark


class DemoMode(StrEnum):
    """The modes that `--mode` offers."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at_least_once"
    ALL = "all"


class DemoSystem(StrEnum):
    """What the flights can come from."""

    KAFKA = "kafka"


class DemoCluster(StrEnum):
    """The clusters that `--cluster` offers."""

    SPARK = "spark"


System = Annotated[
    DemoSystem | None,
    typer.Argument(
        metavar="kafka",
        help="Send the flights through it first; the output is a Delta table then.",
    ),
]
JsonFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the figures there; - for standard output."),
]
Mode = Annotated[
    DemoMode | None,
    typer.Option(help="Which checkpoint mode to show; all by default, with kafka aligned."),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Brokers for kafka; those of TEST_KAFKA_BOOTSTRAP or 127.0.0.1:9092 by default.",
    ),
]
Cluster = Annotated[
    DemoCluster | None,
    typer.Option(help="Run the workers there, and kill executors as well as workers."),
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Of Spark; by default two executors here.")
]
Kills = Annotated[
    int,
    typer.Option(min=0, help="Workers to kill in each run; on Spark, every other is an executor."),
]
Keep = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep output and checkpoints in this new or empty folder."),
]
Storage = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Keep them there, such as s3://bucket/new-prefix."),
]


def demo(
    system: System = None,
    json: JsonFile = None,
    mode: Mode = None,
    bootstrap: Bootstrap = None,
    cluster: Cluster = None,
    master: Master = None,
    kills: Kills = 2,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="How long the slow stage takes in all, but for replays.")
    ] = 12.0,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Only so many flights; all 336,776 by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draw the same victims and pauses as another run did.")
    ] = None,
    keep: Keep = None,
    storage: Storage = None,
    storage_option: StorageOption = None,
) -> None:
    """Replay the flights of New York 2013, kill processes of the job, have Spark verify the output.

    Runs once in each checkpoint mode. With kafka, the flights go into a topic first and from there into a
    Delta table, and the coordinator is killed as well. The exit status is 0 if all kills were made, nothing
    was lost, no process is left and, in a mode that promises so, nothing was duplicated or wrong; otherwise
    it is 1.
    """
    from minirt.cli.console import console
    from minirt.cli.demo_kafka import run_through_kafka
    from minirt_connectors.flights.demo import Plan
    from minirt_connectors.flights.processes import Mark

    _refuse_unwritable(json)
    _refuse_cluster(cluster, master, kills, keep)
    address = _bootstrap(bootstrap, system)
    out = console(stderr=json == "-")
    plans = [Plan(each, kills, seconds, seed) for each in _modes(mode, system)]
    runs: Sequence[DemoRun | KafkaRun]
    if system is not None:
        _refuse_places(cluster, storage, storage_option)
        with _folder(keep) as folder:
            root, left = str(folder), False
            runs = run_through_kafka(out, address, folder, plans, rows)
    else:
        options = _storage_options(storage, storage_option, keep)
        mark = Mark()
        with _folder(keep) as folder:
            root = str(folder) if storage is None else storage.rstrip("/")
            place = _place(out, cluster, master)
            demo = _prepare(out, folder / "flights", plans, rows, place)
            runs = [
                _run_one(out, f"{root}/{plan.mode}", options, plan, demo, place, mark)
                for plan in plans
            ]
            left = _leaves_something(out, place, mark)
    if storage is not None or keep is not None:
        _say_where(out, root, plans)
    _write(json, {"runs": [run.to_plain() for run in runs]})
    if left or not all(run.passed for run in runs):
        raise typer.Exit(1)


def _modes(mode: DemoMode | None, system: DemoSystem | None) -> Sequence[str]:
    from minirt_connectors.flights.demo import MODES

    if mode is DemoMode.ALL or (mode is None and system is None):
        return MODES
    return (str(mode or DemoMode.ALIGNED),)


def _bootstrap(given: str | None, system: DemoSystem | None) -> str:
    if system is None and given is not None:
        raise ConfigurationError("--bootstrap has no effect without kafka")
    return given or os.environ.get("TEST_KAFKA_BOOTSTRAP") or "127.0.0.1:9092"


def _refuse_places(
    cluster: DemoCluster | None, storage: str | None, storage_option: Sequence[str] | None
) -> None:
    given = {"--cluster": cluster, "--storage": storage, "--storage-option": storage_option}
    for name, value in given.items():
        if value:
            raise ConfigurationError(f"{name} has no effect with kafka")


def _say_where(out: Console, root: str, plans: Sequence[Plan]) -> None:
    out.print(f"Kept in {root}. Look at it with")
    for plan in plans:
        out.print(f"  minirt checkpoints list {root}/{plan.mode}/checkpoints")


def _refuse_cluster(
    cluster: DemoCluster | None, master: str | None, kills: int, keep: Path | None
) -> None:
    if cluster is None:
        if master is not None:
            raise ConfigurationError("--master has no effect without --cluster")
        return
    if master is not None:
        from minirt_connectors.flights.place import refuse_what_cannot_be_killed

        refuse_what_cannot_be_killed(master, kills, shared=keep is not None)


def _place(out: Console, cluster: DemoCluster | None, master: str | None) -> Place:
    from minirt_connectors.flights.place import Place
    from minirt_connectors.spark import LOCAL_CLUSTER

    out.print(
        "Spark starts, writes down the flights for replay, and computes what must come out ..."
    )
    return Place.here() if cluster is None else Place.on_spark(master or LOCAL_CLUSTER)


def _prepare(
    out: Console, folder: Path, plans: Sequence[Plan], rows: int | None, place: Place
) -> DemoInput:
    from minirt_connectors.flights.demo import PARALLELISM, prepare

    demo = prepare(place.spark, folder, rows)
    victims = "workers" if place.cluster is None else "workers and executors in turn"
    out.print(
        f"{demo.rows:,} flights, {demo.results:,} results expected. Each job: on {place.where}, "
        f"parallelism {PARALLELISM}, a slow stage, a checkpoint every second, {plans[0].kills} kills "
        f"of {victims}."
    )
    return demo


def _leaves_something(out: Console, place: Place, mark: Mark) -> bool:
    """Stop the cluster, if there is one; whether processes are left of it."""
    if place.cluster is None:
        return False
    place.spark.stop()
    left = mark.left_of_executors()
    if left:
        out.print(f"FAILED: executors of Spark are left running: {', '.join(map(str, left))}.")
    else:
        out.print("Nothing is left running: no worker, no agent, no executor.")
    return bool(left)


def _run_one(
    out: Console,
    root: str,
    options: Mapping[str, Any],
    plan: Plan,
    demo: DemoInput,
    place: Place,
    mark: Mark,
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
                choose=place.choose,
                cluster=place.cluster,
            )
        finally:
            line.close()
    out.print(f"  {ended}")
    print_checkpoints("checkpoints", ended.result.checkpoints, stderr=out.stderr)
    out.print("Spark compares the committed output with what it computed itself ...")
    left = mark.left_of_jobs()
    run = verify_output(place.spark, demo, ended, len(left))
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
