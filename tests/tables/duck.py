"""DuckDB reads tables as they are on disk, by libraries that are none of ours."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb


@cache
def _connection(*extensions: str) -> duckdb.DuckDBPyConnection:
    """One that has loaded the extensions from their wheels, which takes a while: nothing is downloaded."""
    connection = duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})
    for extension in extensions:
        folder = Path(import_module(f"duckdb_extension_{extension}").__path__[0])
        file = f"{folder}/extensions/v{duckdb.__version__}/{extension}.duckdb_extension"
        connection.execute(f"LOAD '{file}'")
    return connection


def delta_rows(table: Path | str, query: str = "SELECT id FROM t") -> list[tuple[Any, ...]]:
    """What a query over the table `t` gives."""
    connection = _connection("delta")
    connection.execute(f"CREATE OR REPLACE VIEW t AS FROM delta_scan('{table}')")
    return connection.execute(query).fetchall()


def iceberg_rows(metadata: str, query: str = "SELECT id FROM t") -> list[tuple[Any, ...]]:
    """What a query over the table `t` with this file of metadata gives."""
    connection = _connection("avro", "iceberg")
    connection.execute(f"CREATE OR REPLACE VIEW t AS FROM iceberg_scan('{metadata}')")
    return connection.execute(query).fetchall()
