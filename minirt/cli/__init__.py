"""The command line: `minirt COMMAND`.

One file per command. What a command needs beyond typer is imported when it runs.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer

from minirt.cli.advise import advise
from minirt.cli.bench import bench
from minirt.cli.checkpoints import checkpoints
from minirt.cli.compare import compare
from minirt.cli.conformance import conformance
from minirt.cli.demo import demo
from minirt.cli.history import history
from minirt.cli.host import host
from minirt.cli.jobs import cancel, jobs, rescale, savepoint, stop
from minirt.cli.kafka import kafka
from minirt.cli.new import new
from minirt.cli.run import run
from minirt.cli.simulate import simulate
from minirt.cli.standby import standby
from minirt.cli.top import top
from minirt.cli.ui import ui
from minirt.cli.verify import verify
from minirt.errors import ConfigurationError, MinirtError
from minirt.standard_streams import flush_or_drop, outlive_readers
from minirt.wording import in_flags

FAILED, WRONG_CALL, INTERRUPTED = 1, 2, 130
"""Exit statuses; 0 is success, and options that do not exist are a wrong call, too."""

app = typer.Typer(
    name="minirt",
    help="Stream processing in Python with exactly-once checkpoints.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from minirt.version import __version__

        typer.echo(f"minirt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version, and exit."
        ),
    ] = False,
) -> None:
    """Stream processing in Python with exactly-once checkpoints."""


app.command()(new)
app.command()(run)
app.command()(jobs)
app.command()(top)
app.command()(ui)
app.command()(history)
app.command()(advise)
app.command()(savepoint)
app.command()(stop)
app.command()(cancel)
app.command()(rescale)
app.command()(host)
app.command()(standby)
app.command()(bench)
app.command()(compare)
app.command()(demo)
app.command()(verify)
app.command()(conformance)
app.command()(simulate)
app.add_typer(checkpoints, name="checkpoints")
app.add_typer(kafka, name="kafka")


def main() -> NoReturn:
    """The console script: run a command and exit; what minirt refuses or fails at is one message."""
    outlive_readers()
    with in_flags():
        status = _run()
    error = flush_or_drop(sys.stdout)
    sys.exit(_complain(error, FAILED) if error is not None and status == 0 else status)


def _run() -> int:
    """The exit status."""
    try:
        returned = app(prog_name="minirt", standalone_mode=False)
        return returned if isinstance(returned, int) else 0
    except typer.Abort:
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else FAILED
    except ConfigurationError as error:
        return _complain(error, WRONG_CALL)
    except (MinirtError, OSError) as error:  # Most likely there is no room for what is printed.
        return _complain(error, FAILED)
    except _WrongCall as error:
        return _refuse(error)


_WrongCall: Any = typer.BadParameter.__mro__[2]
"""What typer raises for options and arguments that do not fit; it has no public name."""


def _refuse(error: Any) -> int:
    """Say in one line what is wrong with the call; without any command, show the help."""
    # A name from inside of typer stands ahead of the reason.
    message = error.format_message().replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    if "\n" in message:
        print(message, file=sys.stderr)
    else:
        command = "minirt" if context is None else context.command_path
        print(f"minirt: error: {message.rstrip('.')}; see `{command} --help`", file=sys.stderr)
    return WRONG_CALL


def _complain(error: MinirtError | OSError, status: int) -> int:
    print(f"minirt: error: {error}", file=sys.stderr)
    return status
