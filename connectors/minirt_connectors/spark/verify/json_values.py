"""Takes values of JSON as values of a type: exactly, or not at all.

It stands alone, without minirt, since it travels to Spark's executors: who judges a sink must not share its
mistakes, and executors may lack minirt.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

Take = Callable[[Any], Any]
"""Makes the value of a type of a value of JSON. Raises Misfit."""

_DIGITS = Context(prec=800)
"""Enough for the exact value of any double."""
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d\d:\d\d(?::\d\d)?)(?:\.(\d+))?")
_TIMESTAMP = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d+))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d(?::\d\d)?)?"
)
CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Fraction(str):
    """A number that is no whole one, as it is written, or one of the constants that Python's JSON knows."""


class Misfit(Exception):
    """The value is none of the type: why, and behind which fields."""

    def __init__(self, reason: str, *inner: str) -> None:
        super().__init__(reason)
        self.inner = inner


def taker(kind: pa.DataType, zone: str) -> Take:
    """What takes values as this type; null is taken as null. `zone` is where times without a zone are.

    Raises TypeError for a type that JSON has no form for.
    """
    take = _taker(kind, zone)
    return lambda value: None if value is None else take(value)


def _taker(kind: pa.DataType, zone: str) -> Take:
    types = pa.types
    if types.is_integer(kind):
        return _whole(kind)
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind)
    if types.is_float32(kind) or types.is_float64(kind):
        narrow = types.is_float32(kind)
        return lambda value: _float(value, narrow)
    if types.is_timestamp(kind):
        local, clock = kind.tz is None, _zone(zone)
        return lambda value: _timestamp(value, local, clock)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(taker(kind.value_type, zone))
    if types.is_struct(kind):
        return _struct({field.name: taker(field.type, zone) for field in kind})
    if types.is_map(kind):
        return _map(taker(kind.key_type, zone), taker(kind.item_type, zone))
    for check, take in _SIMPLE:
        if check(kind):
            return take
    raise TypeError(f"JSON has no form for {kind}")


def says(text: str, exact: float) -> bool:
    """Whether the number is what the text says, at as many digits as the text has."""
    if repr(exact) == text:
        return True
    if not math.isfinite(exact):
        return False
    said = Decimal(text)
    try:
        return bool(_DIGITS.quantize(Decimal(exact), said) == said)
    except InvalidOperation:
        return Decimal(exact) == said


def _whole(kind: pa.DataType) -> Take:
    least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1

    def take(value: Any) -> int:
        found = value
        if type(value) is Fraction and value not in CONSTANTS:
            exact = Decimal(value)
            found = int(exact) if exact.adjusted() < 40 and exact == exact.to_integral() else value
        if type(found) is not int:
            raise Misfit("it is no whole number")
        if not least <= found <= most:
            raise Misfit(f"it does not fit into {kind.bit_width} bits")
        return found

    return take


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    text = str(value) if type(value) in (int, Fraction, str) else ""
    if not _DECIMAL.fullmatch(text):
        raise Misfit("it is no decimal number")
    found = Decimal(text)
    if found.adjusted() >= kind.precision - kind.scale and found:
        raise Misfit(f"it does not fit into {kind}")
    _, digits, exponent = found.as_tuple()
    excess = -int(exponent) - kind.scale
    if excess > 0 and any(digits[-excess:]):
        raise Misfit(f"it does not fit into {kind}")
    return found if excess <= 0 else _DIGITS.quantize(found, Decimal(1).scaleb(-kind.scale))


def _float(value: Any, narrow: bool) -> float:
    if type(value) in (Fraction, str) and value in CONSTANTS:
        return CONSTANTS[value]
    if type(value) not in (int, Fraction):
        raise Misfit("it is no number")
    text = str(value)
    try:
        found = float(value)
        if narrow:
            [found] = struct.unpack("f", struct.pack("f", found))
    except OverflowError:
        raise Misfit("it is too large") from None
    if not says(text, found):
        raise Misfit(f"the nearest number of {32 if narrow else 64} bits is {found!r}")
    return found


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit("it is not true or false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Misfit("it is no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("it has half of a character") from None
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise Misfit("it is not base64") from None


def _date(value: Any) -> dt.date:
    if not _DATE.fullmatch(_text(value)):
        raise Misfit("it is no date")
    try:
        return dt.date.fromisoformat(value)
    except ValueError as error:
        raise Misfit(f"it is no date ({error})") from None


def _time(value: Any) -> dt.time:
    match = _TIME.fullmatch(_text(value))
    if match is None:
        raise Misfit("it is no time of day")
    try:
        return dt.time.fromisoformat(f"{match[1]}{_microseconds(match[2])}")
    except ValueError as error:
        raise Misfit(f"it is no time of day ({error})") from None


def _timestamp(value: Any, local: bool, clock: dt.tzinfo) -> dt.datetime:
    match = _TIMESTAMP.fullmatch(_text(value))
    if match is None:
        raise Misfit("it is no point in time")
    zone = (match["zone"] or "").replace("Z", "+00:00")
    written = f"{match['day']}T{match['time']}{_microseconds(match['fraction'])}{zone}"
    try:
        found = dt.datetime.fromisoformat(written)
        if local:
            return found.astimezone(clock).replace(tzinfo=None) if zone else found
        return (found if zone else found.replace(tzinfo=clock)).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise Misfit(f"it is no point in time ({error})") from None


def _microseconds(fraction: str | None) -> str:
    if not fraction:
        return ""
    if fraction[6:].strip("0"):
        raise Misfit("Spark's times have microseconds, and it has more digits")
    return f".{fraction[:6]:0<6}"


def _list(take: Take) -> Take:
    def take_all(value: Any) -> list[Any]:
        if type(value) is not list:
            raise Misfit("it is no list")
        return [take(one) for one in value]

    return take_all


def _struct(takes: dict[str, Take]) -> Take:
    def take_all(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Misfit("it is no object")
        for name in value:
            if name not in takes:
                raise Misfit("the field is not expected", name)
        found = {}
        for name, take in takes.items():
            try:
                found[name] = take(value.get(name))
            except Misfit as misfit:
                raise Misfit(str(misfit), name, *misfit.inner) from None
        return found

    return take_all


def _map(take_key: Take, take_value: Take) -> Take:
    """An object, whose keys are texts, or a list of pairs."""

    def take_all(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is dict:
            pairs = [(_key(key, take_key), item) for key, item in value.items()]
        elif type(value) is list and all(type(one) is list and len(one) == 2 for one in value):
            pairs = [(take_key(key), item) for key, item in value]
        else:
            raise Misfit("it is no map")
        if any(key is None for key, _ in pairs):
            raise Misfit("a key of it is null")
        if len({repr(key) for key, _ in pairs}) < len(pairs):
            raise Misfit("a key is in it twice")
        return [(key, take_value(item)) for key, item in pairs]

    return take_all


def _key(text: str, take: Take) -> Any:
    """The key of an object: what is no text in other places is the JSON of it here."""
    try:
        return take(text)
    except Misfit as misfit:
        try:
            return take(json.loads(text, parse_float=Fraction, parse_constant=Fraction))
        except ValueError:
            raise misfit from None


def _zone(name: str) -> dt.tzinfo:
    """A session's time zone: a region, or an offset."""
    match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d?):?(\d\d)?", name)
    if match is None:
        return dt.UTC if name in ("Z", "UTC", "GMT") else ZoneInfo(name)
    offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    return dt.timezone(-offset if match[1] == "-" else offset)


_SIMPLE: list[tuple[Callable[[pa.DataType], bool], Take]] = [
    (pa.types.is_boolean, _bool),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
]
