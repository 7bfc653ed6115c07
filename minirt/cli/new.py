"""`minirt new`: a project that runs, with a test."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from string import Template as Text
from typing import Annotated

import typer

from minirt.errors import ConfigurationError

_FILES = {
    "job.py": "job.py.txt",
    "test_job.py": "job_test.py.txt",
    "minirt.toml": "minirt.toml.txt",
    "README.md": "README.md.txt",
    "Dockerfile": "Dockerfile.txt",
    "compose.yml": "compose.yml.txt",
    "requirements.txt": "requirements.txt.txt",
    ".gitignore": "gitignore.txt",
}
"""What a project has, and the files beside this one that it is made from."""
_SPARK_FILES = {
    "pipeline.py": "spark_pipeline.py.txt",
    "job.py": "spark_job.py.txt",
    "verdict.py": "spark_verdict.py.txt",
    "test_job.py": "spark_job_test.py.txt",
    "minirt.toml": "minirt.toml.txt",
    "README.md": "spark_README.md.txt",
    "requirements.txt": "spark_requirements.txt.txt",
    ".gitignore": "spark_gitignore.txt",
}
"""The same for a project that begins with a DataFrame and ends with the verdict of Spark."""


class Template(StrEnum):
    """What a project begins with."""

    FILES = "files"
    SPARK = "spark"


_TEMPLATES = {Template.FILES: _FILES, Template.SPARK: _SPARK_FILES}
_ORDERS = 240
_FIRST = 1_714_557_600_000
"""When the first order was made, in milliseconds since 1970: on 1 May 2024 at 10:00."""
_NAME = re.compile(r"[^\W.-][\w .-]*")
"""Names that stand in Python, TOML and Markdown as they are."""


def new(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="The folder to make; its name is that of the job."),
    ],
    template: Annotated[
        Template,
        typer.Option(
            help="What the job reads: files, or a DataFrame of Spark, which judges its output as well."
        ),
    ] = Template.FILES,
) -> None:
    """Make a project: a job with windows and checkpoints, its test, options, a container, a README.

    Nothing is overwritten: the folder must not exist, or be empty.
    """
    path = Path(folder).absolute()
    if not _NAME.fullmatch(path.name):
        raise ConfigurationError(
            f"{path.name!r} cannot be the name of a project: that begins with a letter or digit, and "
            "has letters, digits, blanks, '_', '-' and '.'"
        )
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ConfigurationError(f"{folder} exists already, and is not an empty folder")
    (path / "data").mkdir(parents=True)
    for name, text in project(path.name, template):
        (path / name).write_text(text, "utf-8")
    typer.echo(f"made {folder}. Try it:")
    typer.echo(f"  cd {shlex.quote(folder)}")
    typer.echo("  minirt run job.py --config minirt.toml")
    typer.echo("  cat out/*.jsonl")
    if template is Template.SPARK:
        typer.echo("  python verdict.py")


def project(name: str, template: Template = Template.FILES) -> Iterator[tuple[str, str]]:
    """The files of a project of this name, each with its path and its text."""
    from importlib.resources import files

    from minirt.version import __version__

    for file, origin in _TEMPLATES[template].items():
        text = (files("minirt.cli") / "project" / origin).read_text("utf-8")
        yield file, Text(text).substitute(name=name, version=__version__)
    yield "data/orders.jsonl", "".join(f"{json.dumps(order)}\n" for order in orders())


def orders() -> Iterator[dict[str, object]]:
    """Two seconds of event time between any two orders, of three shops; one of eleven is given back."""
    for number in range(_ORDERS):
        amount = 5 + number * 7 % 40
        yield {
            "time": _FIRST + 2_000 * number,
            "shop": ("north", "south", "web")[number * 5 % 3],
            "amount": -amount if number % 11 == 10 else amount,
        }
