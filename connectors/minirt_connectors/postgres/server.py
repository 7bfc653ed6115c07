"""Connections to a PostgreSQL server, by ADBC for columns and by psycopg for rows, and what errors mean."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from minirt.errors import ConfigurationError, MinirtError, SinkDataError, StorageError

CONNECT_TIMEOUT_S = 8
_LOCK_TIMEOUT_MS = 30_000
_SESSION = {
    "connect_timeout": str(CONNECT_TIMEOUT_S),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "minirt",
}
"""A server that is gone is noticed within half a minute. What the URI says of these holds instead."""

_TEXT_FORMS = {
    "datestyle": "'ISO, YMD'",
    "timezone": "'UTC'",
    "bytea_output": "'hex'",
    "extra_float_digits": "3",
    "intervalstyle": "'postgres'",
    "lock_timeout": str(_LOCK_TIMEOUT_MS),
    "row_security": "off",
}
"""How values look as texts, whatever the server prefers. Rows that a policy hides are an error."""

_NO_LIMITS = """
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
    'statement_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout',
    'transaction_timeout')"""
"""A reader waits for its job, for as long as that takes, and a copy of a table takes its time."""

_ASKS_TO_INSTALL = 'PostgreSQL needs the extra "postgres": pip install "minirt[postgres]"'

_HOPELESS = ("22", "23", "42", "0A", "44", "3F", "3D", "28")
"""Classes of SQLSTATE that the same statement would meet again: data, constraints, names, rights."""

_HOPELESS_WRITES = ("21000", "55000")
"""Of a write also: two rows for one, and a table that is not made for it."""

TYPES: dict[str, pa.DataType] = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""The Arrow type by which a column of a PostgreSQL type is written as it is."""


class Server:
    """Where a database is, and how to get there. Pickled into workers; says no password in any message."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri) if isinstance(uri, str) else None
        if parts is None or parts.scheme not in ("postgresql", "postgres"):
            raise ConfigurationError(
                "a PostgreSQL server is given as postgresql://user:password@host:port/database"
            )
        query = urlencode({**_SESSION, **_query(parts)}, quote_via=quote)
        self._uri = urlunsplit(parts._replace(query=query))
        self._secret = unquote(parts.password or "")
        place = parts.netloc.rpartition("@")[2]
        self.name = f"{place or 'the local server'}{parts.path}"

    def __repr__(self) -> str:
        return f"Server({self.name!r})"

    def connect(self) -> Any:
        """An ADBC connection without autocommit. Raises StorageError, within seconds."""
        try:
            import adbc_driver_postgresql.dbapi as driver
        except ImportError as error:
            raise ConfigurationError(_ASKS_TO_INSTALL) from error
        with self.errors("cannot connect"):
            connection = driver.connect(self._uri)
            with connection.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = {_LOCK_TIMEOUT_MS}")
                # A coordinator that was stopped in the middle must not keep its successor waiting.
                cursor.execute("SET idle_in_transaction_session_timeout = 60000")
            connection.commit()
        return connection

    def session(self, **options: str) -> Any:
        """A psycopg connection with autocommit; `options` are those of libpq. Raises StorageError."""
        try:
            import psycopg
        except ImportError as error:
            raise ConfigurationError(_ASKS_TO_INSTALL) from error
        with self.errors("cannot connect"):
            connection = psycopg.connect(
                self._uri, autocommit=True, client_encoding="utf8", **options
            )
            for name, value in _TEXT_FORMS.items():
                connection.execute(f"SET {name} = {value}".encode())
            connection.execute(_NO_LIMITS)
        return connection

    @contextmanager
    def errors(
        self, action: str, hopeless: type[MinirtError] = ConfigurationError
    ) -> Iterator[None]:
        """Errors of the driver as those of minirt: `hopeless` where trying again would not help."""
        try:
            yield
        except MinirtError:
            raise
        except Exception as error:
            if not _is_of_driver(error):
                raise
            state = getattr(error, "sqlstate", None) or ""
            text = f"{self.name}: {action}: {self._explained(error)}"
            of_write = hopeless is SinkDataError and state in _HOPELESS_WRITES
            if state[:2] in _HOPELESS or of_write:
                raise hopeless(text) from None
            raise StorageError(text) from None

    def _explained(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        if self._secret:
            text = text.replace(self._secret, "***")
        return text[:1000]


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _query(parts: Any) -> dict[str, str]:
    return dict(parse_qsl(parts.query, keep_blank_values=True))


def _is_of_driver(error: Exception) -> bool:
    import adbc_driver_manager

    known: list[type[BaseException]] = [adbc_driver_manager.Error, pa.ArrowException, OSError]
    if psycopg := sys.modules.get("psycopg"):  # Who only writes columns need not load it.
        known.append(psycopg.Error)
    return isinstance(error, tuple(known))
