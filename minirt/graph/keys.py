"""How the key of a record is found."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KeySelector:
    """How the key of a record is found: by columns (one value, or a tuple of several) or a function."""

    columns: tuple[str, ...] = ()
    function: Callable[[Any], Any] | None = None

    def on_rows(self) -> Callable[[Any], Any]:
        return self.function if self.function is not None else operator.itemgetter(*self.columns)
