"""The ends of a job: what a source and a sink must offer, and the built-in ones."""

from minirt.io.base import (
    BadRecord,
    Committable,
    CommitterContext,
    Handle,
    Offset,
    Prepared,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkIdentity,
    SinkWriter,
    Source,
    Split,
    SplitReader,
    Staging,
)
from minirt.io.collection import CollectionSource, SequenceSource
from minirt.io.csv import CsvSource
from minirt.io.file_sink import FileSink
from minirt.io.jsonl import JsonlSink, JsonlSource
from minirt.io.parquet import ParquetSink, ParquetSource
from minirt.io.simple_sinks import CollectSink, DiscardSink, PrintSink

__all__ = [
    "BadRecord",
    "Committable",
    "CommitterContext",
    "Handle",
    "Offset",
    "Prepared",
    "Sink",
    "SinkCommitter",
    "SinkContext",
    "SinkIdentity",
    "SinkWriter",
    "Source",
    "Split",
    "SplitReader",
    "Staging",
    "CollectionSource",
    "CsvSource",
    "JsonlSource",
    "ParquetSource",
    "SequenceSource",
    "CollectSink",
    "DiscardSink",
    "FileSink",
    "JsonlSink",
    "ParquetSink",
    "PrintSink",
]
