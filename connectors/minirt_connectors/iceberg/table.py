"""Where an Iceberg table is, and what the errors of its library mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, MinirtError, StorageError
from minirt.io.remembered import Identity
from minirt_connectors.iceberg.nulls import keep_nulls

_ASKS_TO_INSTALL = 'Apache Iceberg needs the extra "iceberg": pip install "minirt[iceberg]"'
_NAME = "minirt"
"""What a catalog is called whose properties do not say it."""
_FORMATS = (1, 2)
_ANSWER_S = 60.0
_FIRST_ANSWER_S = 8.0
"""When the job is built: somebody waits for it."""


class Location:
    """A catalog and a table in it. Pickled into workers; names no property of the catalog."""

    def __init__(self, catalog: Mapping[str, str] | str, table: str) -> None:
        if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
            raise ConfigurationError(f"table must be named as namespace.table, got {table!r}")
        if not isinstance(catalog, Mapping | str) or not catalog:
            raise ConfigurationError(
                "catalog must be the properties of a catalog, as pyiceberg's load_catalog takes them, or "
                "the name of one that is configured for pyiceberg"
            )
        self._properties = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
        name = self._properties.pop("name", _NAME)
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"catalog: the name must be text, got {name!r}")
        self._catalog = name
        self.name = table

    def __repr__(self) -> str:
        return f"Location({self.name!r})"

    def load(self, answer_s: float = _ANSWER_S) -> Any:
        """The table as it is now; a catalog over HTTP has so long for each answer.

        Raises ConfigurationError if there is none, StorageError for all else.
        """
        try:
            from pyiceberg import exceptions

            from minirt_connectors.iceberg.patience import catalog_of

            keep_nulls()
        except ImportError as error:
            raise ConfigurationError(_ASKS_TO_INSTALL) from error
        with self.errors("cannot open the table"):
            try:
                return catalog_of(self._catalog, self._properties, answer_s).load_table(self.name)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
                raise ConfigurationError(
                    f"{self.name}: the catalog has no such table under the name {self._catalog!r}. Create "
                    "it first; or, as catalogs in a database keep tables by the name of the catalog, give "
                    "the name that it was created under as catalog={'name': ..., ...}"
                ) from error

    def look(self) -> Any:
        """The table, when the job is built. Raises ConfigurationError, also if nobody can tell."""
        try:
            return self.load(_FIRST_ANSWER_S)
        except StorageError as error:
            raise ConfigurationError(str(error)) from error

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """What goes wrong in the library, a catalog or a storage as errors of minirt.

        Each catalog brings errors of its own; all but those of minirt are taken for an outage.
        """
        try:
            yield
        except MinirtError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            for secret in self._secrets():
                text = text.replace(secret, "***")
            raise StorageError(f"{self.name}: {action}: {text[:1000]}") from None

    def _secrets(self) -> list[str]:
        """The properties that no message may show: those of a storage or an account, and addresses."""
        open_ones = ("type", "warehouse", "py-io-impl", "name")
        return [
            value
            for key, value in self._properties.items()
            if key not in open_ones and isinstance(value, str) and len(value) > 3
        ]


def identity_of(location: Location, table: Any) -> Identity:
    """Tell a table from others of its name: they have another UUID."""
    ids = {"table uuid": str(table.metadata.table_uuid)}
    return Identity("Iceberg table", location.name, ids)


def columns_of(table: Any) -> pa.Schema:
    """The columns of a table as Arrow has them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(table.schema(), include_field_ids=False)


def check_writable(table: Any) -> None:
    """Raises ConfigurationError if the table asks more of its writers than the library does."""
    name = ".".join(table.name())
    version = table.metadata.format_version
    if version not in _FORMATS:
        raise ConfigurationError(
            f"{name}: the table has format version {version}; 1 and 2 are known"
        )
    if (wanted := table.properties.get("write.format.default", "parquet")) != "parquet":
        raise ConfigurationError(
            f"{name}: the table wants files of {wanted}; the sink writes Parquet"
        )


def float_partitions(table: Any) -> list[tuple[str, ...]]:
    """The floats that a table is partitioned by, each as the names that lead to it."""
    from pyiceberg.types import DoubleType, FloatType

    sources = {field.source_id for field in table.spec().fields}
    return [
        path
        for id, path, kind in _fields_of(table.schema().as_struct())
        if id in sources and isinstance(kind, FloatType | DoubleType)
    ]


def _fields_of(
    struct: Any, above: tuple[str, ...] = ()
) -> Iterator[tuple[int, tuple[str, ...], Any]]:
    """The fields of a struct, and of structs in it: id, names that lead to it, type."""
    from pyiceberg.types import StructType

    for field in struct.fields:
        path = (*above, field.name)
        yield field.field_id, path, field.field_type
        if isinstance(field.field_type, StructType):
            yield from _fields_of(field.field_type, path)
