"""Apache Iceberg as a source and as a sink that commits each record exactly once."""

from minirt_connectors.iceberg.sink import IcebergSink
from minirt_connectors.iceberg.source import IcebergSource

__all__ = ["IcebergSink", "IcebergSource"]
