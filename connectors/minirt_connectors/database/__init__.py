"""Any database with a DB-API 2 driver as a sink that commits each record exactly once."""

from minirt_connectors.database.sink import DatabaseSink

__all__ = ["DatabaseSink"]
