"""The command line of `verify`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from minirt.errors import MinirtError
from minirt_connectors.spark.session import local_session
from minirt_connectors.spark.verify.committed import read_committed, within_reach
from minirt_connectors.spark.verify.comparison import compare, reading
from minirt_connectors.spark.verify.tolerance import tolerance_of

OK, DIFFERENT, WRONG_CALL = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two folders or files and print the verdict.

    The exit status is 0 if the output is as expected, 1 if it differs, 2 if it cannot be compared.
    """
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said why, or has shown its help
        return int(stop.code or 0)
    try:
        return run(
            arguments.output,
            arguments.expected,
            keys=arguments.keys,
            tolerance=arguments.tolerance,
            examples=arguments.examples,
            report=arguments.json,
        )
    except (MinirtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_CALL


def run(
    output: str,
    expected: str,
    *,
    keys: Sequence[str] | None,
    examples: int,
    report: str | None,
    tolerance: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Compare two folders or files and print the verdict: 0 if the output is as expected, else 1.

    `tolerance` is written as `price=0.01,ratio=0.1%`.
    Raises what `verify` raises, and OSError if the report cannot be written.
    """
    allowed = None if tolerance is None else tolerance_of(tolerance)
    spark = local_session("minirt-verify")
    with reading(), within_reach(expected, storage_options) as path:
        wanted = read_committed(spark, path)
        verdict = compare(
            spark,
            output,
            wanted,
            keys=keys,
            tolerance=allowed,
            examples=examples,
            report=report,
            storage_options=storage_options,
        )
    print(verdict)
    return OK if verdict.ok else DIFFERENT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m minirt_connectors.spark.verify",
        description="Have Spark compare committed output with what it must be.",
    )
    parser.add_argument("output", help="folder or file of Parquet or JSONL")
    parser.add_argument("expected", help="the same, with the rows that must be in the output")
    parser.add_argument(
        "--keys", type=_names, metavar="A,B", help="columns that identify a row; all by default"
    )
    parser.add_argument(
        "--tolerance", metavar="A=0.01,B=0.1%%", help="largest differences that count as none"
    )
    parser.add_argument("--examples", type=int, default=10, help="findings shown of each kind")
    parser.add_argument("--json", metavar="FILE", help="write the verdict there, too")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
