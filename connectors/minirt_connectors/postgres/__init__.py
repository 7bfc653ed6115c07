"""PostgreSQL as a source of rows or of changes, and as a sink that commits each record exactly once."""

from minirt_connectors.postgres.changes_source import PostgresChangesSource
from minirt_connectors.postgres.sink import PostgresSink
from minirt_connectors.postgres.source import PostgresSource

__all__ = ["PostgresChangesSource", "PostgresSink", "PostgresSource"]
