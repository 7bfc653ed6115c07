"""Kafka as a source, and as a sink that commits each record exactly once."""

from minirt_connectors.kafka.direct import LostTransactionError
from minirt_connectors.kafka.formats import AvroFormat, Format, ProtobufFormat, SchemaRegistry
from minirt_connectors.kafka.sink import KafkaSink
from minirt_connectors.kafka.source import KafkaSource

__all__ = [
    "AvroFormat",
    "Format",
    "KafkaSink",
    "KafkaSource",
    "LostTransactionError",
    "ProtobufFormat",
    "SchemaRegistry",
]
