"""State as users declare it: class attributes of a process, bound to the current key at run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, Generic, Literal, get_args

from minirt.data.custody import Custody
from minirt.errors import ConfigurationError
from minirt.functions import TimeDomain
from minirt.generics import K, T
from minirt.state.expiry import Refresh, time_to_live
from minirt.state.keyed import KeyedState
from minirt.units import Duration


class Handle:
    """A declaration, or a bound copy of one: that alone has `_state`, `_table` and `_custody`.

    With a `ttl`, what is stored expires so long after it was last written, or with `refresh="read"` also
    read. `clock` says what time it goes by: "processing", the default, or "event".

    State and the functions of users share no value: both what is stored and what is read is a copy.
    """

    _state: KeyedState
    _table: dict[Any, Any]
    _custody: Custody

    def __init__(
        self,
        *,
        name: str | None = None,
        ttl: Duration | None = None,
        refresh: Refresh | None = None,
        clock: TimeDomain | None = None,
    ) -> None:
        self.ttl = time_to_live(ttl, refresh, clock, f"a {type(self).__name__}")
        """When what it holds expires; None if never."""
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError(f"the name of a state is a non-empty str, not {name!r}")
        if name is not None and "@" in name:
            raise ConfigurationError(
                f"the name of a state must not have an '@', which tells where its times are: {name!r}"
            )
        self._name = name
        self._attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    def clear(self) -> None:
        """Forget what the current key has: it has the default again, or nothing."""
        self._table.pop(self._state.key, None)

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("_state", "_table", "_custody"):
            name = self.__dict__.get("_name") or self.__dict__.get("_attribute")
            what = f"state {name!r}" if name else f"a {type(self).__name__}"
            raise ConfigurationError(
                f"{what} is used outside a running job: declare it as a class attribute of a KeyedProcess, "
                "KeyedCoProcess or WindowProcess, and use it in their methods only"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {attribute!r}")


class ValueState(Handle, Generic[T]):
    """One value for every key; `default` while none is set. `ValueState[int]` has ints.

    `get` gives a copy: a list or dict that was changed has to be `set` again. Large ones are better kept
    in a ListState or MapState, which copy single elements.
    """

    def __init__(
        self,
        default: T = None,  # type: ignore[assignment]  # Who leaves it out says ValueState[int | None].
        *,
        name: str | None = None,
        ttl: Duration | None = None,
        refresh: Refresh | None = None,
        clock: TimeDomain | None = None,
    ) -> None:
        super().__init__(name=name, ttl=ttl, refresh=refresh, clock=clock)
        if type(default).__hash__ is None:
            raise ConfigurationError(
                f"the default of a ValueState must not be a {type(default).__name__}, as all keys "
                "would share it; use ListState or MapState, or None and set() the first value"
            )
        self._default = default

    def get(self) -> T:
        """A copy of what the current key has; the default if nothing was set, or it has expired."""
        value: T = self._custody.lend(self._table.get(self._state.key, self._default))
        return value

    def set(self, value: T) -> None:
        """Keep a copy of `value` for the current key."""
        self._table[self._state.key] = self._custody.take(value)

    @property
    def value(self) -> T:
        """As `get`; assigning is `set`."""
        return self.get()

    @value.setter
    def value(self, value: T) -> None:
        self.set(value)


Redistribution = Literal["round_robin", "union"]
"""What becomes of the lists of all subtasks at a restore: they are dealt in turn, or each gets them all."""


class ListState(Handle, Generic[T]):
    """A list for every key; an empty one takes no room. Elements are copied in and out, and expire one
    by one.

    In a Process, which has no keys, it is a list for each subtask. `redistribution` says what becomes of
    these at a restore: with "round_robin", the default, each keeps its own, and at another parallelism
    the elements of all are dealt in turn; with "union" each gets the elements of all, whenever a job is
    restored.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        ttl: Duration | None = None,
        refresh: Refresh | None = None,
        clock: TimeDomain | None = None,
        redistribution: Redistribution | None = None,
    ) -> None:
        super().__init__(name=name, ttl=ttl, refresh=refresh, clock=clock)
        if redistribution not in (None, *get_args(Redistribution)):
            raise ConfigurationError(
                f"redistribution is {' or '.join(map(repr, get_args(Redistribution)))}, "
                f"not {redistribution!r}"
            )
        self.redistribution = redistribution
        """None if nothing was said."""

    def get(self) -> list[T]:
        """The elements, as a list of the caller's own."""
        return self._custody.lend_all(self._table.get(self._state.key, []))

    def add(self, element: T) -> None:
        """Put a copy of `element` behind the others."""
        self._table.setdefault(self._state.key, []).append(self._custody.take(element))

    def extend(self, elements: Iterable[T]) -> None:
        """As `add`, for each of the elements."""
        added = [self._custody.take(element) for element in elements]
        if added:
            self._table.setdefault(self._state.key, []).extend(added)

    def set(self, elements: Iterable[T]) -> None:
        """Replace all elements."""
        replacement = [self._custody.take(element) for element in elements]
        self.clear()
        if replacement:
            self._table[self._state.key] = replacement


class MapState(Handle, MutableMapping[K, T]):
    """A dict for every key; an empty one takes no room. Values are copied in and out, and expire field by
    field."""

    def __getitem__(self, field: K) -> T:
        value: T = self._custody.lend(self._current()[field])
        return value

    def __setitem__(self, field: K, value: T) -> None:
        self._table.setdefault(self._state.key, {})[field] = self._custody.take(value)

    def __delitem__(self, field: K) -> None:
        current = self._current()
        del current[field]
        if not current:
            self.clear()

    def __contains__(self, field: object) -> bool:
        return field in self._current()

    def __iter__(self) -> Iterator[K]:
        fields = iter(self._current())
        return map(self._custody.settle, fields) if self._custody.settles else fields

    def __len__(self) -> int:
        return len(self._current())

    def _current(self) -> dict[K, T]:
        current: dict[K, T] | None = self._table.get(self._state.key)
        return {} if current is None else current
