"""Which type the values of JSON have, where nobody says it; it stands alone as `json_values` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from minirt_connectors.spark.verify.json_values import CONSTANTS, Fraction, says

_LONG = 2**63
_DIGITS_MAX = 38


class Mixed(Exception):
    """Values of one column are of kinds that no type holds."""


@dataclass(slots=True)
class Shape:
    """What was seen of the values of one column, or of one field within. Null tells nothing."""

    kind: str = ""
    """"" as long as nothing but null was seen; else boolean, number, text, list or object."""
    longs: bool = True
    """All numbers are whole, and of 64 bits."""
    doubles: bool = True
    """All numbers are what a double says."""
    special: bool = False
    """There is a NaN or an infinity."""
    whole_digits: int = 1
    scale: int = 0
    item: Shape | None = None
    fields: dict[str, Shape] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        """Take in one more value. Raises Mixed."""
        if value is None:
            return
        self._be(_KINDS[type(value)])
        if type(value) in (int, Fraction):
            self._add_number(value)
        elif type(value) is list:
            self.item = self.item or Shape()
            for one in value:
                self.item.add(one)
        elif type(value) is dict:
            for name, one in value.items():
                self.fields.setdefault(name, Shape()).add(one)

    def merge(self, other: Shape) -> None:
        """Take in what was seen elsewhere. Raises Mixed."""
        if not other.kind:
            return
        self._be(other.kind)
        self.longs &= other.longs
        self.doubles &= other.doubles
        self.special |= other.special
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.scale = max(self.scale, other.scale)
        if other.item is not None:
            self.item = self.item or Shape()
            self.item.merge(other.item)
        for name, one in other.fields.items():
            self.fields.setdefault(name, Shape()).merge(one)

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Shape:
        """The shape that `dataclasses.asdict` has made this of."""
        item = plain["item"]
        inner = {name: cls.of_plain(one) for name, one in plain["fields"].items()}
        return cls(**{**plain, "item": item and cls.of_plain(item), "fields": inner})

    def arrow(self) -> pa.DataType:
        """The type that holds all that was seen. Raises Mixed if none does."""
        match self.kind:
            case "list":
                return pa.list_(Shape().arrow() if self.item is None else self.item.arrow())
            case "object":
                return pa.struct([(name, one.arrow()) for name, one in self.fields.items()])
            case "boolean":
                return pa.bool_()
            case "number":
                return self._number()
        return pa.string()

    def _be(self, kind: str) -> None:
        if self.kind not in ("", kind):
            raise Mixed(f"it is {kind}, and {self.kind} in other lines")
        self.kind = kind

    def _add_number(self, value: int | Fraction) -> None:
        if type(value) is int and -_LONG <= value < _LONG:
            self.whole_digits = max(self.whole_digits, len(str(abs(value))))
            self.doubles = self.doubles and (abs(value) <= 2**53 or says(str(value), float(value)))
            return
        self.longs = False
        if value in CONSTANTS:
            self.special = True
            return
        exact = Decimal(value)
        try:
            self.doubles = self.doubles and says(str(value), float(value))
        except OverflowError:
            self.doubles = False
        exponent = int(exact.as_tuple().exponent)
        self.whole_digits = max(self.whole_digits, exact.adjusted() + 1)
        self.scale = max(self.scale, -exponent)

    def _number(self) -> pa.DataType:
        if self.longs:
            return pa.int64()
        if self.doubles:
            return pa.float64()
        if self.special or self.whole_digits + self.scale > _DIGITS_MAX:
            raise Mixed("no type of Spark holds all of its numbers exactly")
        return pa.decimal128(self.whole_digits + self.scale, self.scale)


_KINDS = {
    bool: "boolean",
    int: "number",
    Fraction: "number",
    str: "text",
    list: "list",
    dict: "object",
}
