"""State as users declare it: class attributes of a process, bound to the current key at run time."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from minirt.data.custody import Custody
from minirt.errors import ConfigurationError
from minirt.state.keyed import KeyedState


class Handle:
    """A declaration, or a bound copy of one: that alone has `_state`, `_table` and `_custody`.

    State and the functions of users share no value: both what is stored and what is read is a copy.
    """

    _state: KeyedState
    _table: dict[Any, Any]
    _custody: Custody

    def __init__(self, name: str | None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError(f"the name of a state is a non-empty str, not {name!r}")
        self._name = name
        self._attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("_state", "_table", "_custody"):
            raise ConfigurationError(
                f"state {self.__dict__.get('_name') or self.__dict__.get('_attribute')!r} is used "
                "outside a running job: declare it as a class attribute of a KeyedProcess, and use it in "
                "open, process and on_timer only"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {attribute!r}")


class ValueState(Handle):
    """One value for every key; `default` while none is set.

    `get` gives a copy: a list or dict that was changed has to be `set` again. Large ones are better kept
    in a ListState or MapState, which copy single elements.
    """

    def __init__(self, default: Any = None, *, name: str | None = None) -> None:
        super().__init__(name)
        if type(default).__hash__ is None:
            raise ConfigurationError(
                f"the default of a ValueState must not be a {type(default).__name__}, as all keys "
                "would share it; use ListState or MapState, or None and set() the first value"
            )
        self._default = default

    def get(self) -> Any:
        return self._custody.lend(self._table.get(self._state.key, self._default))

    def set(self, value: Any) -> None:
        self._table[self._state.key] = self._custody.take(value)

    def clear(self) -> None:
        """Forget the value; `get` gives the default again."""
        self._table.pop(self._state.key, None)

    @property
    def value(self) -> Any:
        """As `get`; assigning is `set`."""
        return self.get()

    @value.setter
    def value(self, value: Any) -> None:
        self.set(value)


class ListState(Handle):
    """A list for every key; an empty one takes no room. Elements are copied in and out."""

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name)

    def get(self) -> list[Any]:
        """The elements, as a list of the caller's own."""
        return self._custody.lend_all(self._table.get(self._state.key, []))

    def add(self, element: Any) -> None:
        self._table.setdefault(self._state.key, []).append(self._custody.take(element))

    def extend(self, elements: Iterable[Any]) -> None:
        added = [self._custody.take(element) for element in elements]
        if added:
            self._table.setdefault(self._state.key, []).extend(added)

    def set(self, elements: Iterable[Any]) -> None:
        """Replace all elements."""
        replacement = [self._custody.take(element) for element in elements]
        self.clear()
        if replacement:
            self._table[self._state.key] = replacement

    def clear(self) -> None:
        self._table.pop(self._state.key, None)


class MapState(Handle, MutableMapping[Any, Any]):
    """A dict for every key; an empty one takes no room. Values are copied in and out."""

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name)

    def __getitem__(self, field: Any) -> Any:
        return self._custody.lend(self._current()[field])

    def __setitem__(self, field: Any, value: Any) -> None:
        self._table.setdefault(self._state.key, {})[field] = self._custody.take(value)

    def __delitem__(self, field: Any) -> None:
        current = self._current()
        del current[field]
        if not current:
            self.clear()

    def __contains__(self, field: object) -> bool:
        return field in self._current()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def clear(self) -> None:
        self._table.pop(self._state.key, None)

    def _current(self) -> dict[Any, Any]:
        current: dict[Any, Any] | None = self._table.get(self._state.key)
        return {} if current is None else current


def bind_states(process: object, state: KeyedState, custody: Custody) -> None:
    """Give a process its own handles for the states that its class and their parents declare.

    Raises ConfigurationError for two states of one name, and for handles that are no declarations.
    """
    declared = declarations(type(process))
    attributes = getattr(process, "__dict__", None)
    if attributes is None:
        if declared:
            raise ConfigurationError(
                f"{type(process).__name__} declares state and has __slots__; remove these"
            )
        return
    for attribute, value in attributes.items():
        if isinstance(value, Handle) and attribute not in declared:
            raise ConfigurationError(
                f"{type(process).__name__}.{attribute}: declare state as a class attribute, not in "
                "__init__"
            )
    owner: dict[str, str] = {}
    for attribute, handle in declared.items():
        name = handle._name or attribute
        other = owner.setdefault(name, attribute)
        if other != attribute:
            raise ConfigurationError(
                f"{type(process).__name__}: {other} and {attribute} declare a state of the same "
                f"name, {name!r}"
            )
        bound = copy.copy(handle)
        bound._state = state
        bound._table = state.table(name)
        bound._custody = custody
        attributes[attribute] = bound


def declarations(kind: type) -> dict[str, Handle]:
    """The states that a class declares, by attribute; what a class defines hides what its parents do."""
    visible: dict[str, object] = {}
    for parent in reversed(kind.__mro__):
        visible.update(vars(parent))
    return {name: value for name, value in visible.items() if isinstance(value, Handle)}
