"""Records in columns: how they are laid out for operators on columns."""

from __future__ import annotations

from typing import Any

import minirt as rt
from minirt.testing.conformance.stages.base import LAID, Path, Record, Site, key_of

WEIGHTS = 1000


def weight_of(path: Path) -> int:
    """A number of a record to add up."""
    return key_of(path, WEIGHTS)


def lay_out(record: Record, keys: int) -> dict[str, Any]:
    """The fields in which a record travels in columns."""
    path, time, notes = record
    # A record may be a list as well as a tuple: the order of texts must not tell.
    text = repr((path, time, tuple(notes)))
    return {"key": key_of(path, keys), "weight": weight_of(path), "record": text}


def laid_out(site: Site, *columns: str) -> rt.Stream:
    """The stream of a stage in columns: it is laid out before it is dealt."""
    [stream], [sender], keys = site.streams, site.senders, site.stage.keys
    before: dict[str, Any] = {"parallelism": sender.parallelism[site.form]}
    laid = stream.map(lambda r: lay_out(r, keys), uid=f"{site.uid}{LAID}", **before)
    return laid.select(*columns, uid=f"{site.uid}-select", **before)
