"""What can be wrong with data that is packed or unpacked."""

from __future__ import annotations

from minirt.errors import MinirtError

_SHOWN_CHARS = 80


class UnsupportedRecordError(MinirtError):
    """A record or a state value has a type that cannot be sent or stored."""


class MalformedDataError(MinirtError):
    """Bytes are not what an encoder of minirt wrote."""


class UnlikeTypesError(MinirtError, TypeError):
    """A column has values of two types, and no type holds the values of both exactly.

    `one` is the type of the values that do not fit, or that came first, and `other` the one that they
    should go with; None if there is no such column. `value` is the first value that does not fit, where it
    depends on values.
    """

    def __init__(self, column: str, one: object, other: object, *value: object) -> None:
        self.column, self.one, self.other, self.value = column, one, other, value
        if other is None:
            text = f"column {column!r} of type {one} is one that the others do not have"
        elif value:
            text = (
                f"column {column!r}: the value {_shown(value[0])} of type {one} cannot become {other} "
                "without a change"
            )
        else:
            text = (
                f"column {column!r} is of type {one} in some records and of type {other} in others, and no "
                "type holds the values of both exactly"
            )
        super().__init__(f"{text}; cast the column to one type first")

    def __reduce__(self) -> tuple[type[UnlikeTypesError], tuple[object, ...]]:
        # Types travel as texts: an error shows them, and nothing else is done with them.
        return type(self), (self.column, str(self.one), self.other and str(self.other), *self.value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
