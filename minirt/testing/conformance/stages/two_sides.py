"""What stages share that join two streams by key: records of each side in a column of its own."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.edges import EdgeKind
from minirt.testing.conformance.stages.base import LAID, MORE, Path, Record, Site, StageKind, key_of

SIDES = "left", "right"
COLUMNS = ["key", "left"], ["key", "right"]
"""Those of each side."""


class TwoSides(StageKind):
    """A kind whose operator joins what `laid_out_sides` gives, by the column `key`."""

    streams: ClassVar = 2
    inputs: ClassVar = 2
    keyed: ClassVar = True

    @abstractmethod
    def of_result(self, row: Mapping[str, Any]) -> Record:
        """The record that a result of the operator stands for."""

    def takes(self, edge: EdgeKind) -> bool:
        """Copies of a record would be joined as well."""
        return super().takes(edge) and not edge.copies

    def of_row(self, row: Mapping[str, Any]) -> Record:
        if all(side in row for side in SIDES):
            return self.of_result(row)
        [side] = (side for side in SIDES if side in row)
        record: Record = ast.literal_eval(row[side])
        return record


def laid_out_sides(
    site: Site, keys: int, takes_part: Callable[[Path, int], bool] = lambda path, side: True
) -> list[rt.Stream]:
    """Both streams in rows, without the records of a side that do not take part in it."""
    return [_laid_out(site, side, keys, takes_part) for side in (0, 1)]


def _laid_out(
    site: Site, side: int, keys: int, takes_part: Callable[[Path, int], bool]
) -> rt.Stream:
    before: dict[str, Any] = {"parallelism": site.senders[side].parallelism[site.form]}

    def lay_out(record: Record) -> list[dict[str, Any]]:
        row = {"key": key_of(record[0], keys), SIDES[side]: repr(tuple(record))}
        return [row] if takes_part(record[0], side) else []

    # The uid tells the kit which input leads on from here.
    return site.streams[side].flat_map(lay_out, uid=f"{site.uid}{MORE}{side}{LAID}", **before)
