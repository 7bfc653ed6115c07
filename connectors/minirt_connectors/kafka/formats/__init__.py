"""Formats of the values of Kafka records: one file and one line here for each.

Those that have a name are in `FORMATS`; the others need arguments.
"""

from collections.abc import Callable
from typing import get_args

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt.io.json_text import OnNan
from minirt_connectors.kafka.formats.avro import AvroFormat
from minirt_connectors.kafka.formats.base import Format, Undecodable
from minirt_connectors.kafka.formats.json_values import JsonFormat, json_lines
from minirt_connectors.kafka.formats.protobuf import ProtobufFormat
from minirt_connectors.kafka.formats.raw import RawFormat
from minirt_connectors.kafka.formats.registry import SchemaRegistry

__all__ = [
    "FORMATS",
    "AvroFormat",
    "Format",
    "ProtobufFormat",
    "SchemaRegistry",
    "Undecodable",
    "format_of",
    "json_lines",
]

FORMATS: dict[str, Callable[[pa.Schema | None, OnNan], Format]] = {
    "json": JsonFormat,
    "raw": lambda *_: RawFormat(),
}


def format_of(given: str | Format, schema: pa.Schema | None = None, nan: OnNan = "error") -> Format:
    """The format of this name, or the given one. Raises ConfigurationError for options without effect."""
    if schema is not None and given != "json":
        raise ConfigurationError('schema=... tells the columns of format="json"; others take none')
    if nan not in get_args(OnNan):
        raise ConfigurationError(f"nan must be one of {', '.join(get_args(OnNan))}, got {nan!r}")
    if nan != "error" and given != "json":
        raise ConfigurationError(f'nan={nan!r} has no effect but with format="json"; leave it out')
    if isinstance(given, Format):
        return given
    if given not in FORMATS:
        raise ConfigurationError(
            f"format must be one of {', '.join(FORMATS)} or a Format, got {given!r}"
        )
    return FORMATS[given](schema, nan)
