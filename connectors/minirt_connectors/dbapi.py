"""What sources and sinks do with a connection of any driver that follows DB-API 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Any

from minirt.errors import MinirtError, SinkDataError

Errors = Callable[[str, type[MinirtError]], AbstractContextManager[None]]
"""Errors of the driver while it does something, as those of minirt."""


def rows(connection: Any, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """What a query gives."""
    with closing(connection.cursor()) as cursor:
        _execute(cursor, statement, parameters)
        return [tuple(row) for row in cursor.fetchall()]


def first(connection: Any, statement: str) -> tuple[Any, ...] | None:
    """The first row of what a query gives; the others are not fetched."""
    with closing(connection.cursor()) as cursor:
        _execute(cursor, statement, None)
        row = cursor.fetchone()
        return None if row is None else tuple(row)


def run(connection: Any, statement: str, parameters: Any = None) -> None:
    """A statement that gives nothing."""
    with closing(connection.cursor()) as cursor:
        _execute(cursor, statement, parameters)


@contextmanager
def committing(connection: Any, errors: Errors) -> Iterator[None]:
    """Commit what the block does, or roll it back if it raises."""
    try:
        yield
        with errors("cannot commit", SinkDataError):
            connection.commit()
    except BaseException:
        with suppress(Exception):  # Whoever uses it closes it then, which does as much.
            connection.rollback()
        raise


def closed(connection: Any) -> None:
    """Close a connection, whatever state it is in; the database rolls back what is not committed."""
    with suppress(Exception):
        connection.rollback()
    with suppress(Exception):
        connection.close()


def _execute(cursor: Any, statement: str, parameters: Any) -> None:
    # Some drivers take None for parameters, and complain.
    cursor.execute(statement, *(() if parameters is None else (parameters,)))
