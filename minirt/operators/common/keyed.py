"""What operators with state per key have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minirt.operators.common.base import Operator, OperatorContext
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
