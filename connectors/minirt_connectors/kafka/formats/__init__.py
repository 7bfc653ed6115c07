"""Formats of the values of Kafka records: one file and one line here for each."""

from collections.abc import Callable

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt_connectors.kafka.formats.base import Format, Undecodable
from minirt_connectors.kafka.formats.json_values import JsonFormat, json_lines
from minirt_connectors.kafka.formats.raw import RawFormat

__all__ = ["FORMATS", "Format", "Undecodable", "format_of", "json_lines"]

FORMATS: dict[str, Callable[[pa.Schema | None], Format]] = {
    "json": JsonFormat,
    "raw": lambda _: RawFormat(),
}


def format_of(given: str | Format, schema: pa.Schema | None = None) -> Format:
    """The format of this name, or the given one. Raises ConfigurationError for options without effect."""
    if schema is not None and given != "json":
        raise ConfigurationError('schema=... tells the columns of format="json"; others take none')
    if isinstance(given, Format):
        return given
    if given not in FORMATS:
        raise ConfigurationError(
            f"format must be one of {', '.join(FORMATS)} or a Format, got {given!r}"
        )
    return FORMATS[given](schema)
