"""The stream of all events of NexMark, and what queries see of it: persons, auctions and bids."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

import minirt as rt
from minirt.laboratory.nexmark.schemas import KINDS, SCHEMAS, Kind

WATERMARKS = rt.Watermarks.bounded("4s", timestamp="dateTime")
"""Those of nexmark/nexmark."""


class Events:
    """Persons, auctions and bids, each picked from one `stream` of columns as `schemas.ALL` has them.

    A query asks for each kind once, with the columns that it needs. What it does not ask for costs nothing.
    """

    def __init__(self, stream: rt.Stream) -> None:
        self._stream = stream

    @classmethod
    def of(cls, env: rt.Environment, source: rt.Source) -> Events:
        return cls(env.source(source, watermarks=WATERMARKS, uid="events"))

    def persons(self, *columns: str) -> rt.Stream:
        """With these columns, all of them if none are named; likewise of auctions and bids."""
        return self._view("person", columns)

    def auctions(self, *columns: str) -> rt.Stream:
        return self._view("auction", columns)

    def bids(self, *columns: str) -> rt.Stream:
        return self._view("bid", columns)

    def _view(self, kind: Kind, columns: Sequence[str]) -> rt.Stream:
        # Columns are picked first: that copies none, and only these are filtered.
        names = columns or SCHEMAS[kind].names
        stream, picked = self._stream, [_TYPE]
        if _NAME in names:
            stream = stream.with_column(_NAME, pc.field(kind, _NAME), uid=f"names-of-{kind}s")
            picked.append(_NAME)
        computed = {name: pc.field(kind, name) for name in names if name != _NAME}
        all_kinds = stream.select(*picked, uid=f"columns-of-{kind}s", **computed)
        own = all_kinds.filter(pc.field(_TYPE) == KINDS.index(kind), uid=f"are-{kind}s")
        return own.select(*names, uid=f"{kind}s")


_TYPE = "event_type"
_NAME = "name"
"""A column of persons that `select` cannot compute, as it has an option of that name."""
