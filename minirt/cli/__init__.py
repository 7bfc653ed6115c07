"""The command line: `minirt COMMAND`.

One file per command. What a command needs beyond typer is imported when it runs.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from minirt.cli.bench import bench
from minirt.cli.checkpoints import checkpoints
from minirt.cli.conformance import conformance
from minirt.cli.demo import demo
from minirt.cli.history import history
from minirt.cli.jobs import cancel, jobs, rescale, savepoint, stop
from minirt.cli.run import run
from minirt.cli.top import top
from minirt.cli.verify import verify
from minirt.errors import ConfigurationError, MinirtError

FAILED, WRONG_CALL = 1, 2
"""Exit statuses; 0 is success, and options that do not exist are a wrong call, too."""

app = typer.Typer(
    name="minirt",
    help="Stream processing in Python with exactly-once checkpoints.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(jobs)
app.command()(top)
app.command()(history)
app.command()(savepoint)
app.command()(stop)
app.command()(cancel)
app.command()(rescale)
app.command()(bench)
app.command()(demo)
app.command()(verify)
app.command()(conformance)
app.add_typer(checkpoints, name="checkpoints")


def main() -> NoReturn:
    """The console script: run a command and exit; what minirt refuses or fails at is one message."""
    try:
        app(prog_name="minirt")
    except ConfigurationError as error:
        _complain(error)
        sys.exit(WRONG_CALL)
    except MinirtError as error:
        _complain(error)
        sys.exit(FAILED)
    except OSError as error:
        _complain(error)  # Most likely there is no room for what is printed.
        sys.exit(FAILED)
    sys.exit(0)


def _complain(error: MinirtError | OSError) -> None:
    print(f"minirt: error: {error}", file=sys.stderr)
