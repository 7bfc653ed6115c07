"""What the folders of partitioned output say of the rows below: `day=2024-05-06/part-...`, as texts."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from minirt.errors import ConfigurationError
from minirt_connectors.spark.verify.json_values import says

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_DOUBLE = re.compile(_DECIMAL.pattern + r"(E-?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_INSTANT = re.compile(_TIMESTAMP.pattern + r"([+-]\d\d:\d\d)?")

Partition = Mapping[str, str | None]
"""The columns that the folders above a file name, with their texts."""


def partition_of(file: str, root: str) -> Partition:
    """What the folders between `root` and the file say. A text that stands for nothing is None."""
    found: dict[str, str | None] = {}
    for part in PurePosixPath(file).relative_to(PurePosixPath(root)).parts[:-1]:
        name, equals, text = part.partition("=")
        if equals:
            found[unquote(name)] = None if text == _NOTHING else unquote(text)
    return found


def texts_of(partitions: Iterable[Partition]) -> dict[str, frozenset[str | None]]:
    """The texts that there are of each column. Raises ConfigurationError where files differ in columns."""
    found: dict[str, set[str | None]] = {}
    columns: tuple[str, ...] | None = None
    for partition in partitions:
        if columns is not None and columns != tuple(partition):
            raise ConfigurationError(
                f"some files are in folders of {', '.join(columns) or 'no column'}, others in those of "
                f"{', '.join(partition) or 'no column'}"
            )
        columns = tuple(partition)
        for name, text in partition.items():
            found.setdefault(name, set()).add(text)
    return {name: frozenset(texts) for name, texts in found.items()}


def refuse_texts(name: str, texts: Iterable[str | None], kind: DataType) -> None:
    """Raise ConfigurationError for a text that is not the one way to write a value of this type."""
    for text in texts:
        if text is not None and not _is_written(text, kind):
            raise ConfigurationError(
                f"column {name}: the folder {name}={text} is not how {kind.simpleString()} is written, "
                "which the other side has; if it is text, cast the other side to string"
            )


def _is_written(text: str, kind: DataType) -> bool:
    from pyspark.sql import types as T

    match kind:
        case T.StringType() | T.CharType() | T.VarcharType():
            return True
        case T.BooleanType():
            return text in ("true", "false")
        case T.IntegralType():
            return bool(_WHOLE.fullmatch(text)) and _fits(int(text), kind)
        case T.DecimalType():
            _, _, fraction = text.partition(".")
            whole = len(text.lstrip("-").partition(".")[0].lstrip("0"))
            fits = len(fraction) <= kind.scale and whole <= kind.precision - kind.scale
            return bool(_DECIMAL.fullmatch(text)) and fits
        case T.DoubleType():
            return bool(_DOUBLE.fullmatch(text)) and says(text, float(text))
        case T.DateType():
            return bool(_DATE.fullmatch(text)) and _exists(text)
        case T.TimestampType():
            return bool(_INSTANT.fullmatch(text)) and _exists(text)
        case T.TimestampNTZType():
            return bool(_TIMESTAMP.fullmatch(text)) and _exists(text)
    return False


def _fits(value: int, kind: DataType) -> bool:
    bits = {"byte": 8, "short": 16, "integer": 32, "long": 64}[kind.typeName()]
    return bool(-(2 ** (bits - 1)) <= value < 2 ** (bits - 1))


def _exists(text: str) -> bool:
    """The day is in the calendar, and the time on the clock."""
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
