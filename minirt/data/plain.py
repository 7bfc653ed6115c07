"""msgpack of plain values (None, bool, int, float, str, bytes, list, dict), from a source not trusted."""

from __future__ import annotations

from typing import Any, NoReturn

import msgpack

from minirt.data.errors import MalformedDataError

_UNICODE_ERRORS = "surrogatepass"
"""Stores names of files that are not UTF-8, which are text with lone surrogates, unchanged."""


def pack_plain(value: object) -> bytes:
    """The stored form. Raises TypeError, ValueError or OverflowError for what is not plain."""
    packed: bytes = msgpack.packb(value, unicode_errors=_UNICODE_ERRORS)
    return packed


def unpack_plain(data: bytes) -> Any:
    """The value. Raises MalformedDataError for anything else, however it was crafted.

    Lengths that announce more than there is, nesting without end, and extensions are refused by msgpack.
    """
    try:
        return msgpack.unpackb(
            data, strict_map_key=False, ext_hook=_refuse, unicode_errors=_UNICODE_ERRORS
        )
    except MalformedDataError:
        raise
    except (ValueError, TypeError, MemoryError) as error:
        raise MalformedDataError(f"{type(error).__name__}: {error}") from error


def _refuse(code: int, data: bytes) -> NoReturn:
    raise MalformedDataError(f"it holds an extension of type {code}")
