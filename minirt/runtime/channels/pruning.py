"""Columns that their receiver does not look at are not sent."""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

from minirt.data.batch import Columns


class Pruning:
    """Leaves out of batches all columns but the wanted ones.

    A batch that lacks one of these passes as it is: whoever misses it names what there is.
    """

    def __init__(self, wanted: Set[str]) -> None:
        self._wanted = wanted
        self._schema: pa.Schema | None = None
        """That of the last batch."""
        self._kept: list[int] | None = None
        """The places of the columns that stay of such a batch; None for all."""

    def __call__(self, batch: Columns) -> Columns:
        schema = batch.table.schema
        if self._schema is None or not schema.equals(self._schema, check_metadata=True):
            self._schema, self._kept = schema, self._places(schema)
        if self._kept is None:
            return batch
        return Columns(batch.table.select(self._kept), batch.timestamps)

    def _places(self, schema: pa.Schema) -> list[int] | None:
        kept = [place for place, name in enumerate(schema.names) if name in self._wanted]
        complete = self._wanted <= {*schema.names}
        return kept if complete and len(kept) < len(schema) else None
