"""PostgreSQL as a source and as a sink that commits each record exactly once."""

from minirt_connectors.postgres.sink import PostgresSink
from minirt_connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
