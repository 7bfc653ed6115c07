"""`minirt ui`: a job on a page in the browser, live or as its storage remembers it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from minirt.cli.arguments import StorageOption
from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt.ui.reading import Subject

PORT = 8421


def ui(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|STORAGE]",
            help="A running job, by its name, how its id begins or its URL, minirt://...; "
            "or the storage of one that is over.",
            show_default="the only job that runs",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; by default only this machine can connect."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 is any free one.")
    ] = PORT,
    storage_option: StorageOption = None,
) -> None:
    """Show a job on a page in your browser: what holds it up, its graph, its checkpoints.

    Open the URL that it prints: it holds a token. Running jobs are asked once a second while a page is
    open, and not at all otherwise. Jobs that are over are read from their storage. Ctrl-C ends the page,
    never the job.
    """
    import secrets

    try:
        from minirt.ui.server import listen, make_app, serve
    except ImportError as error:
        raise ConfigurationError(f"the page needs pip install 'minirt[ui]': {error}") from None
    from minirt.ui.guard import Access, is_loopback
    from minirt.ui.watch import Watch

    subject = _subject(job, storage_option)
    subject.read()
    listener = listen(host, port)
    bound = listener.getsockname()[1]
    access = Access(host, bound, secrets.token_urlsafe(32))
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{shown}:{bound}/?token={access.token}")
    if not (host == "localhost" or is_loopback(host)):
        message = f"warning: whoever can reach {host} can read along: the page is not encrypted"
        typer.echo(message, err=True)
    sys.stdout.flush()
    try:
        serve(make_app(Watch(subject), access), listener)
    except KeyboardInterrupt:
        return


def _subject(named: str | None, storage_option: list[str] | None) -> Subject:
    """The running job of that name or URL, or else the storage at that path."""
    from minirt.operations.access import is_url
    from minirt.operations.running import find_job, only_job
    from minirt.ui.live import LiveJob

    if named is None:
        if storage_option:
            raise ConfigurationError("--storage-option has no effect without STORAGE")
        return LiveJob(only_job())
    if is_url(named):
        if storage_option:
            raise ConfigurationError("--storage-option has no effect on a running job")
        return LiveJob(find_job(named))
    is_place = "://" in named or os.sep in named
    if not is_place and not storage_option:
        try:
            return LiveJob(find_job(named))
        except ConfigurationError as error:
            if not os.path.isdir(named):
                raise ConfigurationError(f"{error}; nor is there a storage {named!r}") from None
    from minirt.cli.arguments import open_storage
    from minirt.ui.stored import StoredJob

    if "://" not in named and not os.path.isdir(named):
        raise ConfigurationError(f"there is no storage {named!r}")
    return StoredJob(open_storage(named, storage_option))
