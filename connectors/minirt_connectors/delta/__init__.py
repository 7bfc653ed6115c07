"""Delta Lake as a source and as a sink that commits each record exactly once."""

from minirt_connectors.delta.sink import DeltaSink
from minirt_connectors.delta.source import DeltaSource

__all__ = ["DeltaSink", "DeltaSource"]
