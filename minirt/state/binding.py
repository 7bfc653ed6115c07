"""Gives a process its own handles for the states that its class declares."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from minirt.data.custody import Custody
from minirt.errors import ConfigurationError
from minirt.functions import TimeDomain
from minirt.state.broadcast import BroadcastState, BroadcastTables
from minirt.state.expiring import Expiring, ExpiringList, ExpiringMap, ExpiringValue, times_name
from minirt.state.expiry import StateClock
from minirt.state.handles import Handle, ListState, MapState, ValueState
from minirt.state.keyed import KeyedState

_EXPIRING: Mapping[type[Handle], type[Expiring]] = {
    ValueState: ExpiringValue,
    ListState: ExpiringList,
    MapState: ExpiringMap,
}
_CLOCKS: tuple[TimeDomain, ...] = ("event", "processing")


def bind_states(
    process: object,
    state: KeyedState,
    custody: Custody,
    clocks: Mapping[TimeDomain, StateClock] | None = None,
    *,
    keyed: bool = True,
) -> list[Expiring]:
    """Give a process its own handles for the states that its class and their parents declare.

    Returns those whose state expires; `clocks` are what they go by.

    Raises ConfigurationError for two states of one name, and for handles that are no declarations.
    """
    check_states(process, broadcast=True, keyed=keyed)
    attributes = getattr(process, "__dict__", {})
    expiring: list[Expiring] = []
    for attribute, handle in declarations(type(process)).items():
        if isinstance(handle, BroadcastState):
            continue
        name = name_of(attribute, handle)
        bound = copy.copy(handle)
        bound._state = state
        bound._table = state.table(name)
        bound._custody = custody
        attributes[attribute] = bound
        for clock in _CLOCKS:
            if handle.ttl is None or handle.ttl.clock != clock:
                state.empty(times_name(name, clock))
        if handle.ttl is not None:
            assert clocks is not None
            expiring.append(_expiring(bound, name, clocks[handle.ttl.clock]))
    return expiring


def bind_broadcast(process: object, broadcast: BroadcastTables, custody: Custody) -> None:
    """Give a process its own handles for the broadcast states that its class declares."""
    for attribute, handle in declarations(type(process)).items():
        if isinstance(handle, BroadcastState):
            bound = copy.copy(handle)
            bound._table = broadcast.table(name_of(attribute, handle))
            bound._writable = broadcast
            bound._custody = custody
            process.__dict__[attribute] = bound


def check_states(process: object, *, broadcast: bool = False, keyed: bool = True) -> None:
    """Raise ConfigurationError for two states of one name, and for handles that are no declarations.

    `broadcast` says that there may be broadcast state, `keyed` that the other state is by key.
    """
    kind = type(process)
    declared = declarations(kind)
    for attribute, handle in declared.items():
        if keyed and isinstance(handle, ListState) and handle.redistribution is not None:
            raise ConfigurationError(
                f"{kind.__name__}: redistribution has no effect on the state {attribute!r}, which goes "
                "with its key; leave it out"
            )
        if isinstance(handle, BroadcastState) and not broadcast:
            raise ConfigurationError(
                f"{kind.__name__} declares the broadcast state {attribute!r}: make it a BroadcastProcess, "
                "for stream.key_by(...).connect(other.broadcast())"
            )
    attributes = getattr(process, "__dict__", None)
    if attributes is None and declared:
        raise ConfigurationError(f"{kind.__name__} declares state and has __slots__; remove these")
    for attribute, value in (attributes or {}).items():
        if isinstance(value, Handle) and attribute not in declared:
            raise ConfigurationError(
                f"{kind.__name__}.{attribute}: declare state as a class attribute, not in __init__"
            )
    for attribute, value in _attributes(kind).items():
        if isinstance(value, type) and issubclass(value, Handle) and value is not Handle:
            raise ConfigurationError(
                f"{kind.__name__}.{attribute} is the class {value.__name__}: declare a state by "
                f"{attribute} = {value.__name__}()"
            )
    owner: dict[str, str] = {}
    for attribute, handle in declared.items():
        other = owner.setdefault(handle._name or attribute, attribute)
        if other != attribute:
            raise ConfigurationError(
                f"{kind.__name__}: {other} and {attribute} declare a state of the same name, "
                f"{handle._name or attribute!r}"
            )


def goes_by(process: object, clock: TimeDomain) -> bool:
    """Whether a state that the class of a process declares expires by this clock."""
    handles = declarations(type(process)).values()
    return any(handle.ttl is not None and handle.ttl.clock == clock for handle in handles)


def keyed_states(process: object) -> dict[str, type[Handle]]:
    """The states per key that the class of a process declares: what each is called, and its kind."""
    return {
        name_of(attribute, handle): next(kind for kind in _EXPIRING if isinstance(handle, kind))
        for attribute, handle in declarations(type(process)).items()
        if not isinstance(handle, BroadcastState)
    }


def _expiring(bound: Handle, name: str, clock: StateClock) -> Expiring:
    """The same handle, of the class that knows of times."""
    assert bound.ttl is not None
    kind = next(_EXPIRING[parent] for parent in type(bound).__mro__ if parent in _EXPIRING)
    bound.__class__ = kind
    assert isinstance(bound, Expiring)
    bound.begin(name, bound.ttl, clock)
    return bound


def name_of(attribute: str, handle: Handle) -> str:
    """What a state is called in checkpoints."""
    return handle._name or attribute


def declarations(kind: type) -> dict[str, Handle]:
    """The states that a class declares, by attribute; what a class defines hides what its parents do."""
    return {name: value for name, value in _attributes(kind).items() if isinstance(value, Handle)}


def _attributes(kind: type) -> dict[str, object]:
    visible: dict[str, object] = {}
    for parent in reversed(kind.__mro__):
        visible.update(vars(parent))
    return visible
