"""NexMark: make its events, measure how fast that is, run its queries.

python -m benchmarks.nexmark generate --events 1000000 --out FOLDER
python -m benchmarks.nexmark speed
python -m benchmarks.nexmark run q0 q1 q2
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import minirt as rt
from benchmarks.measure import Measured, print_rows, run
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.source import BLOCK_EVENTS, NexmarkSource
from minirt.laboratory.nexmark.generator import Generator, generator
from minirt.laboratory.nexmark.schemas import KINDS, SCHEMAS
from minirt.laboratory.nexmark.workload import Workload

_ROW_GROUP_EVENTS = 1_000_000
"""How many events there are in a row group."""


def write_parquet(workload: Workload, events: int, folder: Path) -> None:
    """The first events of a workload, as `person.parquet`, `auction.parquet` and `bid.parquet`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = generator(workload)
    for kind in KINDS[:3]:
        with pq.ParquetWriter(folder / f"{kind}.parquet", SCHEMAS[kind]) as writer:
            for start in range(0, events, _ROW_GROUP_EVENTS):
                writer.write_batch(made.events(kind, start, min(events, start + _ROW_GROUP_EVENTS)))


def generator_speed(workload: Workload, events: int) -> list[dict[str, Any]]:
    """CPU time of this process for each kind. Events of other kinds count, but are not made."""
    made = Generator(workload)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        records = 0
        began = time.process_time()
        for start in range(0, events, BLOCK_EVENTS):
            records += made.events(kind, start, min(events, start + BLOCK_EVENTS)).num_rows
        cpu_s = time.process_time() - began
        rows.append(
            {
                "kind": kind,
                "records": records,
                "records_per_cpu_s": records / cpu_s,
                "events_per_cpu_s": events / cpu_s,
            }
        )
    return rows


def run_query(
    name: str, workload: Workload, events: int, parallelism: int, checkpoints: bool
) -> dict[str, Any]:
    """One query over the bids among the events, into a sink that throws its records away."""
    env = rt.Environment(parallelism=parallelism)
    bids = env.source(NexmarkSource(events, "bid", workload=workload), uid="bids")
    QUERIES[name](bids).sink(rt.DiscardSink(), uid="results")
    with tempfile.TemporaryDirectory() as storage:
        every_second = rt.Checkpointing(storage, interval="1s")
        measured = run(env, name, checkpointing=every_second if checkpoints else None)
    return _row(name, events, measured)


def _row(name: str, events: int, measured: Measured) -> dict[str, Any]:
    return {
        "query": name,
        "events": events,
        "seconds": measured.running_s,
        "events_per_s": events / measured.running_s,
        "cpu_s_per_million": measured.cpu_s / events * 1e6,
        "peak_rss_bytes": measured.peak_rss_bytes,
        "checkpoints": measured.result.completed_checkpoints,
    }


def main() -> None:
    arguments = _parser().parse_args()
    try:
        arguments.command(arguments)
    except rt.ConfigurationError as error:
        raise SystemExit(f"benchmarks.nexmark: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)

    generate = commands.add_parser("generate", help="write events as Parquet files")
    _add_workload(generate, events=1_000_000)
    generate.add_argument("--out", type=Path, required=True, help="folder of the files")
    generate.set_defaults(command=_generate)

    speed = commands.add_parser("speed", help="measure the generator alone, in one process")
    _add_workload(speed, events=2_000_000)
    speed.add_argument("--json", help="write the rows to this file, - for standard output")
    speed.set_defaults(command=_speed)

    runs = commands.add_parser("run", help="measure queries")
    runs.add_argument("queries", nargs="*", metavar="QUERY", help="any of: " + ", ".join(QUERIES))
    _add_workload(runs, events=10_000_000)
    runs.add_argument("--parallelism", type=_count, default=2)
    runs.add_argument("--repeat", type=_count, default=3, help="how often each query is run")
    runs.add_argument("--no-checkpoints", action="store_true", help="take none but the last")
    runs.add_argument("--json", help="write the rows to this file, - for standard output")
    runs.set_defaults(command=_run)
    return parser


def _add_workload(parser: argparse.ArgumentParser, events: int) -> None:
    default = Workload()
    parser.add_argument("--events", type=_count, default=events, help="persons, auctions and bids")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument(
        "--rate", type=float, default=default.rate, help="events per second of event time"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a positive whole number, got {text!r}")
    return int(text)


def _workload(arguments: argparse.Namespace) -> Workload:
    return Workload(seed=arguments.seed, rate=arguments.rate)


def _generate(arguments: argparse.Namespace) -> None:
    write_parquet(_workload(arguments), arguments.events, arguments.out)


def _speed(arguments: argparse.Namespace) -> None:
    print_rows(generator_speed(_workload(arguments), arguments.events), arguments.json)


def _run(arguments: argparse.Namespace) -> None:
    workload = _workload(arguments)
    if unknown := set(arguments.queries) - set(QUERIES):
        raise rt.ConfigurationError(
            f"unknown query {min(unknown)!r}; there are: {', '.join(QUERIES)}"
        )
    rows = [
        run_query(
            name, workload, arguments.events, arguments.parallelism, not arguments.no_checkpoints
        )
        for name in arguments.queries or QUERIES
        for _ in range(arguments.repeat)
    ]
    print_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
