"""The options of `minirt compare`."""

from __future__ import annotations

from typing import Annotated

import typer

SECONDS_MIN, SECONDS_MAX = 1.0, 24 * 3600.0
REPEAT_MAX = 100

JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB.PY[:ENV]",
        help="The Python file of the job, and which Environment in it if there are several.",
        show_default=False,
    ),
]
WorkloadOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="A job that comes with minirt instead.")
]
ModesOption = Annotated[
    str | None, typer.Option(metavar="MODE,MODE...", help="By default aligned,unaligned.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        min=SECONDS_MIN, max=SECONDS_MAX, help="How long each run is measured; 15 by default."
    ),
]
RepeatOption = Annotated[
    int | None,
    typer.Option(min=1, max=REPEAT_MAX, help="Runs of each setting; 3 by default."),
]
KillOption = Annotated[
    str | None,
    typer.Option(
        metavar="every=10s",
        help="Kill a random worker that often, by SIGKILL; or at=18s,40s: at these moments.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE,...",
        help="An option of the job, or a parameter of the workload; several values are crossed "
        "with all else. Can be given repeatedly.",
    ),
]
ParallelismOption = Annotated[
    str | None, typer.Option(metavar="N,N...", help="Parallelisms, crossed with all else.")
]
LatencyFromOption = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD",
        help="Where a record at a sink says when it was made: a column, a key, a place in a tuple.",
    ),
]
ExpectOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Rows that the job must put out, as Parquet or JSONL: Spark verifies each run. The job "
        "must end by itself.",
    ),
]
PeersOption = Annotated[
    str | None,
    typer.Option(
        metavar="PEER,PEER...",
        help="Run the same workload in these systems, too: flink, where `make bench-peers` installed it.",
    ),
]
JsonOption = Annotated[str | None, typer.Option(metavar="FILE", help="Write everything there.")]
HtmlOption = Annotated[str | None, typer.Option(metavar="FILE", help="Write the report there.")]
CsvOption = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Write the figures there as CSV.")
]
SvgOption = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Write the plots there as SVG.")
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="Run nothing: draw what --json has written."),
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="Of the kills; the same seed kills alike.")
]
