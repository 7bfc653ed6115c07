"""Compares what a checkpoint remembers of another system with what is there now, in both directions.

A source remembers a position in a topic, a table or a folder; a sink remembers which checkpoint it has
committed. Such a memory means something only while the other side is the same, and at least as far as it
was. So, at each start and at each new connection, two things are compared:

* the *identity* of the other side, `Identity`: a topic of another name or id, another table, another folder
  is refused by `same`;
* its *progress*: a log that ends before the position, or a ledger that knows an older checkpoint, is
  refused by `behind`.

Each refusal names both sides, and the value of the option `accept` with which the job goes on all the same:
"other" or "behind". What a checkpoint without an identity holds is taken as it is: versions up to 0.1.0
stored none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from minirt.errors import ConfigurationError, MinirtError, SourceChangedError
from minirt.wording import given

if TYPE_CHECKING:
    from minirt.io.base import Offset, Source, Split

Accept = Literal["other", "behind"]
"""What a source or sink is told to accept: another system at the other side, or one that went back."""

KEY = "identity"
"""Where the info of a split holds the identity of what its source reads."""

THERE = "go on there at the same positions, if it holds the same records there"
"""What accept="other" mostly does."""

_SHOWN_MAX = 500

logger = logging.getLogger("minirt.ends")


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a topic, a table or a folder from all others.

    `kind` is the noun for it ("topic"), `name` what users call it, `ids` what the system calls it, by the
    kind of id. An id that only one of two identities has is not compared.
    """

    kind: str
    name: str
    ids: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        ids = ", ".join(f"{name} {id}" for name, id in self.ids.items())
        shown = f"{self.kind} {self.name}" + (f" ({ids})" if ids else "")
        return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"

    def is_other_than(self, kept: Identity) -> bool:
        """Tell whether the two cannot be the same: by their names, or by an id that both have."""
        if (self.kind, self.name) != (kept.kind, kept.name):
            return True
        return any(kept.ids.get(name, id) != id for name, id in self.ids.items())

    def to_plain(self) -> dict[str, Any]:
        """Give it as values that a checkpoint can hold."""
        return {"kind": self.kind, "name": self.name, "ids": dict(self.ids)}

    @classmethod
    def from_plain(cls, plain: object) -> Identity | None:
        """Read what `to_plain` gave; None for anything else, as older checkpoints hold."""
        if not isinstance(plain, Mapping):
            return None
        kind, name, ids = (plain.get(part) for part in ("kind", "name", "ids"))
        if not isinstance(kind, str) or not isinstance(name, str) or not isinstance(ids, Mapping):
            return None
        return cls(kind, name, {str(of): str(id) for of, id in ids.items()})


def checked_accept(accept: Accept | Sequence[Accept]) -> frozenset[str]:
    """Give the values of the option `accept` as a set. Raises ConfigurationError for unknown ones."""
    given = (accept,) if isinstance(accept, str) else tuple(accept)
    for one in given:
        if one not in get_args(Accept):
            raise ConfigurationError(
                f'accept is "other", "behind" or a list of these, got {accept!r}'
            )
    return frozenset(given)


def same(
    who: str,
    kept: Identity | None,
    found: Identity,
    accept: Collection[str],
    error: type[MinirtError] = SourceChangedError,
    way_on: str = THERE,
) -> bool:
    """Tell whether the identity that a checkpoint kept is the one that is found now.

    `way_on` says what accept="other" does. Raises `error` if it is another one, unless `accept` has
    "other": then it logs a warning and returns False.
    """
    if kept is None or not found.is_other_than(kept):
        return True
    both = f"{who}: the checkpoint is of the {kept}, but this is the {found}"
    if "other" in accept:
        logger.warning('%s; accept="other": %s', both, way_on)
        return False
    raise error(
        f"{both}: positions in the one mean nothing in the other, so records would be lost or come "
        "twice. Give it back what the checkpoint is of; or begin anew with the other one, by another uid "
        f"and {given('allow_non_restored_state', True)}, or in another storage; or give "
        f'accept="other": {way_on}'
    )


def behind(
    who: str,
    kept: str,
    found: str,
    way_on: str,
    accept: Collection[str],
    error: type[MinirtError] = SourceChangedError,
) -> None:
    """Raise `error` for another side that is not as far as the checkpoint: it went back.

    `kept` says how far the checkpoint is and `found` how far the other side is; `way_on` says what
    accept="behind" does. With that in `accept` it logs a warning instead.
    """
    both = f"{who}: the checkpoint is at {kept}, but {found}"
    if "behind" in accept:
        logger.warning('%s; accept="behind": %s', both, way_on)
        return
    raise error(
        f"{both}: the other side went back, by a failover or from a backup, or was made anew. Bring it "
        "back to where it was, or start the job in another storage; to go on without what it has lost, "
        f'give accept="behind": {way_on}'
    )


def planned(source: Source[Any], parallelism: int) -> list[Split]:
    """Have a source plan its splits, each with the identity of what it reads."""
    splits = list(source.plan_splits(parallelism))
    identity = source.identity() if splits else None
    return [stamped(split, identity) for split in splits]


def resumed(
    who: str, source: Source[Any], split: Split, offset: Offset, found: Identity | None
) -> tuple[Split, Offset]:
    """Give a split and an offset of a checkpoint as a source goes on with them.

    `found` is the identity of what the source reads now. Raises SourceChangedError if that is another one
    than the checkpoint remembers.
    """
    kept = source.remembered(split)
    if found is None:
        return split, offset
    if not same(who, kept, found, source.accept, way_on=source.accept_other):
        assert kept is not None
        split, offset = source.moved(split, offset, kept)
    elif kept is not None:
        # An id that nobody can tell at the moment is not forgotten.
        found = Identity(found.kind, found.name, {**kept.ids, **found.ids})
    return stamped(split, found), offset


def kept_identity(split: Split) -> Identity | None:
    """Give the identity that a split holds; None for a split without one."""
    return Identity.from_plain(split.info.get(KEY))


def stamped(split: Split, identity: Identity | None) -> Split:
    """Give the split with this identity in its info."""
    if identity is None:
        return split
    return type(split)(split.id, {**split.info, KEY: identity.to_plain()})
