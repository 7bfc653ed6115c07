"""Keeps null lists and maps of structs null, which the library turns into empty ones, written and read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def keep_nulls() -> None:
    """Mend the library in this process, where it turns columns of one schema into those of another.

    It makes lists of structs, and maps to structs, anew of their parts, and leaves out which are null:
    apache/iceberg-python#3833. Where it no longer does that, nothing changes.
    """
    from pyiceberg.io import pyarrow as library

    visitor: Any = library.ArrowProjectionVisitor
    if getattr(visitor, "keeps_nulls", False):
        return

    class Projection(visitor):  # type: ignore[misc]
        keeps_nulls = True

        def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
            return _as_null_as(list_array, super().list(list_type, list_array, value_array))

        def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
            made = super().map(map_type, map_array, key_result, value_result)
            return _as_null_as(map_array, made)

    library.ArrowProjectionVisitor = Projection


def _as_null_as(given: pa.Array | None, made: pa.Array | None) -> pa.Array | None:
    if given is None or made is None or given.null_count == made.null_count:
        return made
    return pc.if_else(given.is_valid(), made, pa.scalar(None, made.type))
