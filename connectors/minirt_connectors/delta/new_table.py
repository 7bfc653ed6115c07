"""Whether a table can be made as it is wanted: one is made on trial, and looked at."""

from __future__ import annotations

import tempfile

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt_connectors.delta.table import Location, Shape, check_writable, shape_of

_KNOWN = (
    "it has bool, int8 to int64, float32, float64, decimal128, string, binary, date32, "
    'timestamp("us", "UTC"), timestamp("us"), and lists, structs and maps of them'
)


def check_creatable(location: Location, shape: Shape) -> None:
    """Raise ConfigurationError, with the column, for a schema that no Delta table can have as it is.

    The library refuses some types only when it makes the table, and stores others as something else.
    """
    if _problem_of(shape) is None:
        return
    for field in shape.schema:
        problem = _problem_of(Shape(pa.schema([field]), ()))
        if problem is not None:
            raise ConfigurationError(
                f"schema: column {field.name!r} of the table {location.uri} cannot be {field.type}: "
                f"{problem}"
            )
    raise ConfigurationError(
        f"schema: the table {location.uri} cannot be made: {_problem_of(shape)}"
    )


def _problem_of(shape: Shape) -> str | None:
    with tempfile.TemporaryDirectory(prefix="minirt-delta-") as folder:
        trial = Location(folder, None)
        try:
            trial.create(shape)
            table = trial.load()
            check_writable("the table", table)
            made = shape_of(table)
        except Exception as error:  # The library has no class of its own for a wrong type.
            return f"{_line(error, folder)}; {_KNOWN}"
    if made == shape:
        return None
    stored = ", ".join(
        f"{have.type}" if have.nullable == want.nullable else f"{have.type} that may be null"
        for have, want in zip(made.schema, shape.schema, strict=True)
        if have != want
    )
    return f"Delta Lake stores it as {stored}; say that in schema=..., and convert the records"


def _line(error: Exception, folder: str) -> str:
    """What the library says, without its stack of calls."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    plain = first.replace(folder, "").replace("External error: ", "")
    return plain.removeprefix("the table: ").strip(": ")[:300]
