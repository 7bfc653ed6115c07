"""How the key of a record is found."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KeySelector:
    """How the key of a record is found: by columns (one value, or a tuple of several) or a function."""

    columns: tuple[str, ...] = ()
    function: Callable[[Any], Any] | None = None

    def on_rows(self) -> Callable[[Any], Any]:
        return self.function if self.function is not None else operator.itemgetter(*self.columns)

    def missing(self, record: Any) -> str | None:
        """Why a record has no key by columns; None if it has one, or a function gives it."""
        if not self.columns:
            return None
        wanted = ", ".join(map(repr, self.columns))
        if not isinstance(record, Mapping):
            return (
                f"a {type(record).__name__} has no columns, which the key {wanted} needs: make records "
                "dicts, or give a function of the record"
            )
        names = [name for name in self.columns if name not in record]
        if not names:
            return None
        return f"it has no column {names[0]!r}; there are {', '.join(map(str, record))}"
