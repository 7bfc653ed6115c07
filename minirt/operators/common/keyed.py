"""What operators with state per key have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from minirt.data.batch import Batch, Columns
from minirt.data.keys import UnstableKeyError, check_keys, exact_keys, key_hash
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.operators.common.base import Operator, OperatorContext, shown
from minirt.operators.common.calling import result_of_each
from minirt.protocol.key_groups import group_range
from minirt.state.keyed import KeyedState
from minirt.state.sections import Section
from minirt.state.stored import STATE


class KeyedOperator(Operator):
    """Owns the keyed state of its key groups."""

    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        groups = group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._groups = groups
        self.state = KeyedState(ctx.max_parallelism, groups, allow_pickle=ctx.allow_pickle)

    def snapshot(self) -> Mapping[str, Section]:
        return named(STATE, self.state.snapshot())

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {STATE + name: paths for name, paths in self.state.builds_on().items()}

    def on_stored(self, path: str) -> None:
        self.state.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self.state.restore(only(STATE, sections), filter_groups=not exact)


def keys_of(batch: Batch, selector: KeySelector) -> list[Any]:
    """The key of each record; of columns, only those are looked at that the key needs."""
    key_of = selector.on_rows()
    if isinstance(batch, Columns) and selector.columns:
        batch = Columns(batch.table.select(list(selector.columns)))
    keys = result_of_each(key_of, batch.rows().records)
    return exact_keys(keys, batch, selector.columns)


def check_stored_keys(keys: Sequence[Any], records: Sequence[Any], label: str) -> None:
    """Raise UserCodeError for a key that no other subtask could find: state is stored under any key.

    Senders refuse them where they deal records, except keys that equal a key which they already know.
    """
    try:
        check_keys(keys)
    except UnstableKeyError as error:
        raise _refused(keys, records, label) from error


def _refused(keys: Sequence[Any], records: Sequence[Any], label: str) -> UserCodeError:
    for key, record in zip(keys, records, strict=True):
        try:
            key_hash(key)
        except UnstableKeyError as error:
            return UserCodeError(f"operator {label} failed on record {shown(record)}: {error}")
    raise AssertionError("one of the keys was refused")


def named(prefix: str, sections: Mapping[str, Section]) -> dict[str, Section]:
    """Sections with a prefix before their names."""
    return {prefix + name: data for name, data in sections.items()}


def only(prefix: str, sections: Mapping[str, bytes]) -> dict[str, bytes]:
    """The sections of a prefix, by their names without it."""
    return {
        name.removeprefix(prefix): data
        for name, data in sections.items()
        if name.startswith(prefix)
    }
