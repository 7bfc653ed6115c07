"""Who owns a record: how records pass between the runtime and the functions of users.

Nobody else may change what the runtime holds in a batch, a buffer or in state. So a function gets records
that are its own, and the runtime copies what it hands over before any code of the user goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa

from minirt.config import Options
from minirt.data.batch import Columns
from minirt.data.codec import decode_columns, encode_columns
from minirt.data.copies import can_change, copied, copied_all
from minirt.data.keeping import changes_nothing, keeps_nothing
from minirt.data.set_order import all_in_set_order, in_set_order
from minirt.data.values import pack_value, shown
from minirt.errors import UserCodeError
from minirt.wording import named

_WATCHED_MAX = 4096
"""How many of the last records are watched."""


class Custody:
    """Copies each value that passes, unless nobody could change it."""

    settles: ClassVar[bool] = False
    """Tells that `settle` may return another object."""

    def settle(self, value: Any) -> Any:
        """A value of state in the form in which functions see it, also after it was stored and read."""
        return value

    def settle_all(self, values: list[Any]) -> list[Any]:
        """As `settle`; the list itself if nothing in it changes."""
        return values

    def take(self, value: Any) -> Any:
        """The value that a function hands over, in a form that the runtime may hold."""
        return copied(value)

    def take_all(self, values: list[Any]) -> list[Any]:
        """As `take`, in a list of its own."""
        return copied_all(values)

    def take_columns(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """As `take`: Arrow's columns do not change, but may lie over arrays of numpy that do."""
        return decode_columns(encode_columns(Columns(table)), trusted=True).table

    def lend(self, value: Any) -> Any:
        """A value that the runtime goes on holding, in a form that a function may change."""
        return copied(value)

    def lend_all(self, values: list[Any]) -> list[Any]:
        """As `lend`, in a list of its own."""
        return copied_all(values)

    def part_all(self, values: list[Any]) -> list[Any]:
        """Records that several branches get, for one of them, in a list of its own."""
        return copied_all(values)

    def trusts(self, function: Any) -> bool:
        """Whether the results of the function need no `take`, because they already belong to the caller."""
        return keeps_nothing(function)

    def leaves_unchanged(self, function: Any) -> bool:
        """Whether a function that is trusted changes none of its arguments."""
        return changes_nothing(function)

    def watch(self, given: Iterable[Any]) -> None:
        """Note that a function is about to get these records as its own."""

    def check(self) -> None:
        """Raise UserCodeError if somebody has changed what the promise of sharing asks them not to."""


class Sharing(Custody):
    """Copies nothing: the user has promised that functions change nothing that was handed over."""

    def take(self, value: Any) -> Any:
        return value

    def take_all(self, values: list[Any]) -> list[Any]:
        return values.copy()

    def take_columns(self, table: pa.RecordBatch) -> pa.RecordBatch:
        return table

    def lend(self, value: Any) -> Any:
        return value

    def lend_all(self, values: list[Any]) -> list[Any]:
        return values.copy()

    def part_all(self, values: list[Any]) -> list[Any]:
        return values.copy()

    def trusts(self, function: Any) -> bool:
        return True

    def leaves_unchanged(self, function: Any) -> bool:
        return True


class Repeating(Custody):
    """What another custody does; and sets in state have one order, however they grew.

    For a subtask that may have to give out the same results again. Sets are put in order whenever they are
    read, so that it makes no difference whether they were stored and read again meanwhile.
    """

    settles: ClassVar[bool] = True

    def __init__(self, custody: Custody) -> None:
        self._custody = custody
        self.take, self.take_all = custody.take, custody.take_all  # type: ignore[method-assign]
        self.take_columns = custody.take_columns  # type: ignore[method-assign]
        self.part_all = custody.part_all  # type: ignore[method-assign]

    def settle(self, value: Any) -> Any:
        return in_set_order(value)

    def settle_all(self, values: list[Any]) -> list[Any]:
        return all_in_set_order(values)

    def lend(self, value: Any) -> Any:
        return in_set_order(self._custody.lend(value))

    def lend_all(self, values: list[Any]) -> list[Any]:
        return all_in_set_order(self._custody.lend_all(values))

    def trusts(self, function: Any) -> bool:
        return self._custody.trusts(function)

    def leaves_unchanged(self, function: Any) -> bool:
        return self._custody.leaves_unchanged(function)

    def watch(self, given: Iterable[Any]) -> None:
        self._custody.watch(given)

    def check(self) -> None:
        self._custody.check()


def custody_of(options: Options, owner: str, *, repeats: bool = False) -> Custody:
    """The custody that the options ask for; `repeats` as in OperatorContext."""
    custody: Custody
    if options.detect_mutation:
        custody = Watching(owner)
    else:
        custody = Sharing() if options.share_records else Custody()
    return Repeating(custody) if repeats else custody


class Watching(Custody):
    """Copies everything, and finds out who would break the promise of sharing."""

    def __init__(self, owner: str) -> None:
        """`owner` says whose functions these are, for the message."""
        self._owner = owner
        self._watched: deque[tuple[Any, bytes, str]] = deque(maxlen=_WATCHED_MAX)

    def take(self, value: Any) -> Any:
        self._remember(value, "handed over")
        return copied(value)

    def take_all(self, values: list[Any]) -> list[Any]:
        return [self.take(value) for value in values]

    def lend(self, value: Any) -> Any:
        lent = copied(value)
        self._remember(lent, "got from its state")
        return lent

    def lend_all(self, values: list[Any]) -> list[Any]:
        return [self.lend(value) for value in values]

    def trusts(self, function: Any) -> bool:
        return False

    def leaves_unchanged(self, function: Any) -> bool:
        return False

    def watch(self, given: Iterable[Any]) -> None:
        for record in given:
            self._remember(record, "been given")

    def check(self) -> None:
        for value, before, how in self._watched:
            if _fingerprint(value) != before:
                raise UserCodeError(
                    f"{self._owner} has changed a value that it had {how}; it is now "
                    f"{shown(value)}. Make a new value instead, or run without "
                    f"{named('options.share_records')} and {named('options.detect_mutation')}"
                )

    def _remember(self, value: Any, how: str) -> None:
        if can_change(value):
            self._watched.append((value, _fingerprint(value), how))


def _fingerprint(value: Any) -> bytes:
    try:
        return pack_value(value, allow_pickle=True)
    except Exception:  # Of the value's own `__reduce__`, too.
        return b""
