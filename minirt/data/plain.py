"""msgpack of plain values (None, bool, int, float, str, bytes, list, dict), from a source not trusted."""

from __future__ import annotations

from typing import Any, NoReturn

import msgpack

from minirt.data.values import MalformedDataError


def unpack_plain(data: bytes) -> Any:
    """The value. Raises MalformedDataError for anything else, however it was crafted.

    Lengths that announce more than there is, nesting without end, and extensions are refused by msgpack.
    """
    try:
        return msgpack.unpackb(data, strict_map_key=False, ext_hook=_refuse)
    except MalformedDataError:
        raise
    except (ValueError, TypeError, MemoryError) as error:
        raise MalformedDataError(f"{type(error).__name__}: {error}") from error


def _refuse(code: int, data: bytes) -> NoReturn:
    raise MalformedDataError(f"it holds an extension of type {code}")
