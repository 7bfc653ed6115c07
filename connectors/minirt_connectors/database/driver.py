"""A driver module as PEP 249 (DB-API 2) describes it, and what its errors mean."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minirt.errors import ConfigurationError, MinirtError, StorageError

_PLACEHOLDERS = {
    "qmark": "?",
    "numeric": ":{place}",
    "named": ":{name}",
    "format": "%s",
    "pyformat": "%({name})s",
}
_HOPELESS = ("IntegrityError", "DataError", "ProgrammingError", "NotSupportedError")
"""The exceptions of PEP 249 that the same statement would meet again."""
_SECRET = re.compile(r"pass|pwd|secret|token|dsn|conninfo|url|uri", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*")


class Driver:
    """A driver and how to connect by it. Pickled into workers; says no password in any message."""

    def __init__(self, module: str, connect: Mapping[str, Any]) -> None:
        if not isinstance(module, str) or not module:
            raise ConfigurationError(
                f"driver must be the name of a DB-API 2 module, as 'sqlite3', got {module!r}"
            )
        self.name = module
        self._connect = dict(connect)

    def __repr__(self) -> str:
        return f"Driver({self.name!r})"

    def module(self) -> Any:
        """Raises ConfigurationError if it is not installed, or no driver."""
        try:
            found = importlib.import_module(self.name)
        except ImportError as error:
            raise ConfigurationError(
                f"the driver {self.name!r} cannot be imported: {error}"
            ) from error
        if getattr(found, "apilevel", None) != "2.0" or not hasattr(found, "connect"):
            raise ConfigurationError(f"{self.name!r} is no driver of DB-API 2 (PEP 249)")
        if found.paramstyle not in _PLACEHOLDERS:
            raise ConfigurationError(
                f"the driver {self.name!r} marks parameters as {found.paramstyle!r}"
            )
        return found

    def connect(self) -> Any:
        """Raises ConfigurationError or StorageError."""
        module = self.module()
        with self.errors("cannot connect"):
            try:
                return module.connect(**self._connect)
            except TypeError as error:
                raise ConfigurationError(
                    f"{self.name}: connect=... does not fit: {self._explained(error)}"
                ) from None

    def marks(self, names: Sequence[str]) -> list[str]:
        """How a statement marks the parameters with these names."""
        mark = _PLACEHOLDERS[self.module().paramstyle]
        return [mark.format(place=place, name=name) for place, name in enumerate(names, 1)]

    def parameters(
        self, names: Sequence[str], rows: Sequence[Sequence[Any]], statement: str | None = None
    ) -> list[Any]:
        """Rows of values as a statement takes them: by place, or by name.

        Drivers that know names know places, too. Who wrote the statement chose; None is one with `marks`.
        """
        by_name = self.module().paramstyle in ("named", "pyformat")
        if by_name and (statement is None or any(map(statement.__contains__, self.marks(names)))):
            return [dict(zip(names, row, strict=True)) for row in rows]
        return [tuple(row) for row in rows]

    @contextmanager
    def errors(self, action: str, hopeless: type[MinirtError] = StorageError) -> Iterator[None]:
        """Errors of the driver as those of minirt: `hopeless` where trying again would not help."""
        try:
            yield
        except MinirtError:
            raise
        except Exception as error:
            module = self.module()
            known = tuple(getattr(module, name, module.Error) for name in _HOPELESS)
            text = f"{self.name}: {action}: {self._explained(error)}"
            if isinstance(error, known):
                raise hopeless(text) from None
            if isinstance(error, module.Error | OSError):
                raise StorageError(text) from None
            if isinstance(error, TypeError | ValueError | OverflowError):
                raise hopeless(text) from None  # Values that a driver has no form for.
            raise

    def _explained(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        for name, value in self._connect.items():
            if _SECRET.search(name) and isinstance(value, str) and value:
                text = text.replace(value, "***")
        return text[:1000]


def plain_name(option: str, name: object) -> str:
    """A name that needs no quotes, which every database has its own way of."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{option} {name!r}: names are of letters, digits and _, since databases quote all others "
            "in different ways; statement=... takes any SQL"
        )
    return name
