"""Of what kind each state of an operator is, which a checkpoint says beside the state itself.

A dict, a list and a single value are stored in the same way. Read as state of another kind they would fail
at some record, or go on as a value that nobody has set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minirt.data.errors import MalformedDataError
from minirt.data.plain import pack_plain, unpack_plain
from minirt.errors import ConfigurationError
from minirt.state.binding import declarations, name_of
from minirt.state.broadcast import BroadcastState
from minirt.state.handles import Handle, ListState, MapState, ValueState
from minirt.state.sections import Section
from minirt.state.stored import STATE_KINDS

_KINDS: tuple[type[Handle], ...] = (ValueState, ListState, MapState, BroadcastState)
_STORED_AS: Mapping[str, type] = {"ListState": list, "MapState": dict}


class KindsOfState:
    """The kinds of an operator's states by the names that they are stored under.

    `keyed` says that a list belongs to a key, and not to a subtask.
    """

    def __init__(self, label: str, kinds: Mapping[str, str]) -> None:
        self._label = label
        self._declared = kinds
        self._stored: dict[str, str] = {}
        """Of a checkpoint that was restored; it may hold states that nobody declares any more."""

    @classmethod
    def of_process(cls, label: str, process: object, *, keyed: bool = True) -> KindsOfState:
        """Those that the class of a process declares."""
        declared = declarations(type(process)).items()
        kinds = {
            name_of(attribute, handle): next(k.__name__ for k in _KINDS if isinstance(handle, k))
            for attribute, handle in declared
        }
        if not keyed:
            kinds = {name: f"{kind} without keys" for name, kind in kinds.items()}
        return cls(label, kinds)

    def beside(self, sections: Mapping[str, Section]) -> dict[str, Section]:
        """These sections; and the one that says of what kind the states are, if there are any."""
        kinds = {**self._stored, **self._declared}
        if not sections or not kinds:
            return {**sections}
        return {**sections, STATE_KINDS: pack_plain(sorted(kinds.items()))}

    def check(self, sections: Mapping[str, bytes]) -> None:
        """Raise ConfigurationError if a checkpoint holds a state of another kind than is declared.

        Checkpoints of earlier versions do not say; `check_values` looks at what they hold.
        """
        if STATE_KINDS not in sections:
            return
        try:
            stored = dict(unpack_plain(sections[STATE_KINDS]))
        except (TypeError, ValueError) as error:
            raise MalformedDataError(f"these are not kinds of state ({error})") from error
        for name, kind in stored.items():
            self._compare(name, kind)
        self._stored |= stored

    def check_values(self, name: str, values: Iterable[Any]) -> None:
        """Raise ConfigurationError if values of a state cannot be of the kind that is declared."""
        wanted = _STORED_AS.get(self._declared.get(name, ""))
        if name in self._stored or wanted is None:
            return
        for value in values:
            if not isinstance(value, wanted):
                others = {kind: name for name, kind in _STORED_AS.items()}
                self._compare(name, others.get(type(value), "ValueState"))

    def _compare(self, name: str, stored: str) -> None:
        declared = self._declared.get(name, stored)
        if declared != stored:
            raise ConfigurationError(
                f"operator {self._label}: the checkpoint holds the state {name!r} of a {stored}, and the "
                f"job declares a {declared} of that name; give the state another name, or the operator a "
                "new uid"
            )
