"""Broadcast state: dicts that every subtask holds alike, since each of them gets all that changes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NoReturn

from minirt.data.errors import UnsupportedRecordError
from minirt.generics import K, T
from minirt.state.handles import Handle
from minirt.state.sections import Section, pack_section, unpack_section
from minirt.state.stored import KEYED_TABLE

Tables = Mapping[str, dict[Any, Any]]


class BroadcastState(Handle, MutableMapping[K, T]):
    """One dict for all keys, the same in each subtask: `process_broadcast` writes it, the rest reads it.

    Declared as a class attribute of a BroadcastProcess. Values are copied in and out.
    """

    _writable: BroadcastTables

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name)

    def __getitem__(self, field: K) -> T:
        value: T = self._custody.lend(self._table[field])
        return value

    def __setitem__(self, field: K, value: T) -> None:
        self._check_writable()
        self._table[field] = self._custody.take(value)

    def __delitem__(self, field: K) -> None:
        self._check_writable()
        del self._table[field]

    def __contains__(self, field: object) -> bool:
        return field in self._table

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._table))

    def __len__(self) -> int:
        return len(self._table)

    def clear(self) -> None:
        """Forget all fields."""
        self._check_writable()
        self._table.clear()

    def _check_writable(self) -> None:
        if not self._writable.writable:
            raise TypeError(
                f"broadcast state {self._name or self._attribute!r} is read-only but in process_broadcast: "
                "each subtask would have its own otherwise"
            )


class BroadcastTables:
    """The broadcast state of one subtask."""

    def __init__(self, *, allow_pickle: bool) -> None:
        self.writable = False
        self._allow_pickle = allow_pickle
        self._tables: dict[str, dict[Any, Any]] = {}
        self._restored = False

    def table(self, name: str) -> dict[Any, Any]:
        """The fields of the state `name`; always the same dict."""
        return self._tables.setdefault(name, {})

    def snapshot(self) -> dict[str, Section]:
        """A section for each state. Raises UnsupportedRecordError for values that cannot be stored."""
        return {name: self._packed(name, table) for name, table in self._tables.items()}

    def restore(self, sections: Mapping[str, bytes]) -> None:
        """Take over what an old subtask held, unless another one's was taken over already: all held the
        same. Raises MalformedDataError.
        """
        if self._restored or not sections:
            return
        self._restored = True
        for name, section in sections.items():
            table = self.table(name)
            chunks = unpack_section(KEYED_TABLE, section, allow_pickle=self._allow_pickle)
            for fields, values in chunks:
                table.update(zip(fields, values, strict=True))

    def _packed(self, name: str, table: Mapping[Any, Any]) -> bytes:
        try:
            return pack_section(KEYED_TABLE, table, table.values(), allow_pickle=self._allow_pickle)
        except UnsupportedRecordError as error:
            raise UnsupportedRecordError(f"state {name!r} cannot be stored: {error}") from error


class NoKey:
    """Stands for the current key where there is none: state by key can neither be read nor written."""

    def __hash__(self) -> NoReturn:
        raise TypeError(
            "a broadcast record has no key: in process_broadcast there are neither state by key nor timers"
        )


NO_KEY = NoKey()
