"""NexMark: make its events, measure how fast that is, run its queries.

python -m benchmarks.nexmark generate --events 1000000 --out FOLDER
python -m benchmarks.nexmark speed
python -m benchmarks.nexmark run --queries q0,q5 --peers flink
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import minirt as rt
from benchmarks.measure import print_rows
from benchmarks.nexmark.files import write_events
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.nexmark.running import SYSTEMS, Setting, missing, shown, skipped, summary
from benchmarks.nexmark.source import BLOCK_EVENTS
from benchmarks.systems import BenchmarkError
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
    runs.add_argument("--queries", default="", help="with commas, any of: " + ", ".join(QUERIES))
    runs.add_argument("--peers", default="", help="with commas, any of: flink")
    _add_workload(runs, events=2_000_000)
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
    queries = _chosen("query", arguments.queries, QUERIES) or list(QUERIES)
    peers = _chosen("peer", arguments.peers, ["flink"])
    unit = BLOCK_EVENTS * arguments.parallelism
    if arguments.events % unit:
        raise rt.ConfigurationError(
            f"--events must be a multiple of {unit}, so that all splits are of one size"
        )
    for peer in peers:
        if reason := missing(peer):
            raise rt.ConfigurationError(reason)
    rows: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_ms = 0 if arguments.no_checkpoints else 1000
        setting = Setting(Path(folder), arguments.events, arguments.parallelism, checkpoint_ms)
        write_events(_workload(arguments), arguments.events, setting.folder)
        for query in map(QUERIES.__getitem__, queries):
            for _ in range(arguments.repeat):
                for system in ["minirt", *peers]:
                    _measure(query, system, setting, rows, left_out)
    for line in summary(rows):
        print(line, file=sys.stderr)
    print_rows(rows, arguments.json, left_out)
    if any("error" in each for each in left_out):
        raise SystemExit(1)


def _measure(
    query: Query,
    system: str,
    setting: Setting,
    rows: list[dict[str, Any]],
    left_out: list[dict[str, Any]],
) -> None:
    """One more row, or why there is none."""
    if reason := skipped(query, system):
        said = {"query": query.name, "system": system, "reason": reason}
        if said not in left_out:
            left_out.append(said)
        return
    try:
        row = SYSTEMS[system](query, setting)
    except (BenchmarkError, rt.JobFailedError) as error:
        left_out.append({"query": query.name, "system": system, "error": str(error)})
        print(f"benchmarks.nexmark: {error}", file=sys.stderr)
    else:
        rows.append(row)
        print(shown(row), file=sys.stderr)


def _chosen(kind: str, text: str, known: Iterable[str]) -> list[str]:
    """The names in a list with commas. Raises ConfigurationError for one that is not known."""
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        raise rt.ConfigurationError(f"unknown {kind} {unknown[0]!r}; there are: {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
