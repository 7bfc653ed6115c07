"""The stream of all events of NexMark, and what queries see of it: persons, auctions and bids."""

from __future__ import annotations

from functools import cached_property

import pyarrow.compute as pc

import minirt as rt
from minirt.laboratory.nexmark.schemas import KINDS, SCHEMAS, Kind

WATERMARKS = rt.Watermarks.bounded("4s", timestamp="dateTime")
"""Those of nexmark/nexmark."""


class Events:
    """Persons, auctions and bids, each picked from one `stream` of columns as `schemas.ALL` has them.

    A kind that a query does not ask for costs nothing.
    """

    def __init__(self, stream: rt.Stream) -> None:
        self._stream = stream

    @classmethod
    def of(cls, env: rt.Environment, source: rt.Source) -> Events:
        return cls(env.source(source, watermarks=WATERMARKS, uid="events"))

    @cached_property
    def persons(self) -> rt.Stream:
        return self._view("person")

    @cached_property
    def auctions(self) -> rt.Stream:
        return self._view("auction")

    @cached_property
    def bids(self) -> rt.Stream:
        return self._view("bid")

    def _view(self, kind: Kind) -> rt.Stream:
        own = self._stream.filter(pc.field("event_type") == KINDS.index(kind), uid=f"are-{kind}s")
        names = [name for name in SCHEMAS[kind].names if name != _NAME]
        columns = {name: pc.field(kind, name) for name in names}
        if len(columns) == len(SCHEMAS[kind]):
            return own.select(uid=f"{kind}s", **columns)
        named = own.with_column(_NAME, pc.field(kind, _NAME), uid=f"names-of-{kind}s")
        return named.select(_NAME, uid=f"{kind}s", **columns)


_NAME = "name"
"""A column of persons that `select` cannot compute, as it has an option of that name."""
