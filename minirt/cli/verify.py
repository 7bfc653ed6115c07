"""`minirt verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from minirt.cli.arguments import StorageOption
from minirt.errors import ConfigurationError, SourceDataError, StorageError


def verify(
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT",
            help="Folder or file of Parquet or JSONL, Delta table, Iceberg metadata file, or "
            "kafka://HOST:PORT/TOPIC.",
        ),
    ],
    expected: Annotated[
        str, typer.Argument(metavar="EXPECTED", help="The same, with the rows that must be there.")
    ],
    keys: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Columns that identify a row; all by default."),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="A=0.01,B=0.1%", help="Largest differences of numbers that count as none."
        ),
    ] = None,
    storage_option: StorageOption = None,
    examples: Annotated[int, typer.Option(min=0, help="Findings shown of each kind.")] = 10,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the verdict there, too.")
    ] = None,
) -> None:
    """Have Spark compare the committed output of a job with what it must be.

    The exit status is 0 if it is as expected, 1 if it differs, 2 if the two cannot be compared.
    """
    from minirt.settings.build import read_storage_options
    from minirt_connectors.spark.verify import run

    names = None if keys is None else [name.strip() for name in keys.split(",")]
    try:
        status = run(
            output,
            expected,
            keys=names,
            examples=examples,
            report=json,
            tolerance=tolerance,
            storage_options=read_storage_options(storage_option or ()),
        )
    except OSError as error:
        raise ConfigurationError(f"cannot write the verdict: {error}") from error
    except (SourceDataError, StorageError) as error:  # 1 says that they differ.
        raise ConfigurationError(str(error)) from error
    raise typer.Exit(status)
