"""Many values as one compact tree: records of one shape are turned into columns before packing.

That is faster both ways than packing record by record, leaves the keys of dicts out, and lets the
types be checked a column at a time. A node is `[layout, ...]`:

    VALUES  values                      as they are
    REPEAT  value                       all the same
    FLOATS  bytes                       float64, little endian
    TUPLES  nodes                       one node a position
    RECORDS keys, nodes                 dicts with the same str keys in the same order
    LISTS   lengths, node               the elements of all lists in one node
    MAPS    lengths, node, node         likewise, for keys and for values of all dicts
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, islice, repeat
from typing import Any

import msgpack

from minirt.data.errors import MalformedDataError, UnsupportedRecordError
from minirt.data.values import explain_unsupported, pack_exact, settle, unpack_exact

VALUES, REPEAT, FLOATS, TUPLES, RECORDS, LISTS, MAPS = range(7)

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_REPEATABLE = _SCALARS - {float}
_COLUMNS_MAX = 64
_DEPTH_MAX = 4
_COUNT_MAX = 1 << 24
_COUNT_END = 16
"""The number of packed values comes before this byte."""


def pack_values(values: list[Any], *, allow_pickle: bool = False) -> bytes:
    """Values of any supported types as bytes, for `unpack_values`. Raises UnsupportedRecordError."""
    if len(values) > _COUNT_MAX:
        raise UnsupportedRecordError(
            f"{len(values)} values at once are more than the {_COUNT_MAX} allowed"
        )
    try:
        body, marked = pack_exact([len(values), arrange(values)], allow_pickle=allow_pickle)
    except UnsupportedRecordError as error:
        raise explain_unsupported(values, error, allow_pickle=allow_pickle) from None
    return (b"\x11" if marked else b"\x10") + body


def unpack_values(
    data: bytes | memoryview, *, allow_pickle: bool = False, opaque_pickles: bool = False
) -> list[Any]:
    """The values that `pack_values` was given. Raises MalformedDataError.

    With `opaque_pickles`, pickles come as they are, as Pickled.
    """
    _check_form(data)
    tree = unpack_exact(
        memoryview(data)[1:],
        marked=data[0] == 0x11,
        allow_pickle=allow_pickle,
        opaque_pickles=opaque_pickles,
    )
    try:
        count, node = tree
        if not 0 <= count <= _COUNT_MAX:
            raise ValueError(f"{count} values announced")
        values = restore(node, count)
        values = values if type(values) is list else list(values)
    except Exception as error:
        raise MalformedDataError(f"packed values are damaged ({error})") from error
    if len(values) != count:
        raise MalformedDataError(f"packed values are damaged: {len(values)} instead of {count}")
    return values


def count_values(data: bytes | memoryview) -> int:
    """How many values `pack_values` was given, without unpacking them. Raises MalformedDataError."""
    _check_form(data)
    unpacker = msgpack.Unpacker()
    unpacker.feed(data[1:_COUNT_END])
    try:
        unpacker.read_array_header()
        return int(unpacker.unpack())
    except Exception as error:
        raise MalformedDataError(f"packed values are damaged ({error})") from error


def _check_form(data: bytes | memoryview) -> None:
    if bytes(data[:1]) not in (b"\x10", b"\x11"):
        raise MalformedDataError(
            "these are not packed values, or those of a newer version of minirt"
        )


def arrange(values: list[Any], depth: int = 0) -> list[Any]:
    """The node for some values; an empty list for none."""
    if not values:
        return []
    kinds = [*map(type, values)]
    kind = kinds[0]
    if kinds.count(kind) != len(values):
        uniform = _SCALARS.issuperset(kinds)
        return [VALUES, values if uniform else settle(values)]
    if kind is float:
        return [FLOATS, struct.pack(f"<{len(values)}d", *values)]
    if kind in _REPEATABLE:
        value = values[0]
        same = value == values[-1] and values.count(value) == len(values)
        return [REPEAT, value] if same else [VALUES, values]
    node = None
    if depth < _DEPTH_MAX:
        if kind is tuple:
            node = _arrange_tuples(values, depth + 1)
        elif kind is dict:
            node = _arrange_records(values, depth + 1) or _arrange_maps(values, depth + 1)
        elif kind is list:
            node = _arrange_lists(values, depth + 1)
    return [VALUES, settle(values)] if node is None else node


def _arrange_tuples(values: list[tuple[Any, ...]], depth: int) -> list[Any] | None:
    if not 0 < len(values[0]) <= _COLUMNS_MAX:
        return None
    try:
        columns = list(zip(*values, strict=True))
    except ValueError:
        return None
    return [TUPLES, [arrange(list(column), depth) for column in columns]]


def _arrange_records(values: list[dict[Any, Any]], depth: int) -> list[Any] | None:
    keys = list(values[0])
    if not 0 < len(keys) <= _COLUMNS_MAX:
        return None
    all_keys = list(chain.from_iterable(values))
    if [*map(type, all_keys)].count(str) != len(all_keys) or all_keys != keys * len(values):
        return None
    return [RECORDS, keys, [arrange([value[key] for value in values], depth) for key in keys]]


def _arrange_lists(values: list[list[Any]], depth: int) -> list[Any]:
    items = list(chain.from_iterable(values))
    return [LISTS, list(map(len, values)), arrange(items, depth)]


def _arrange_maps(values: list[dict[Any, Any]], depth: int) -> list[Any]:
    keys = list(chain.from_iterable(values))
    items = list(chain.from_iterable(map(dict.values, values)))
    lengths = list(map(len, values))
    return [MAPS, lengths, arrange(keys, depth), arrange(items, depth)]


def restore(node: list[Any], count: int) -> Iterable[Any]:
    """The values of a node. Raises TypeError, ValueError or the like where it makes no sense."""
    if count == 0:
        return []
    layout, *parts = node
    if layout == VALUES:
        values: list[Any] = parts[0]
        _check_count(values, count)
        return values
    if layout == REPEAT:
        (value,) = parts
        return repeat(value, count)
    if layout == FLOATS:
        (data,) = parts
        return struct.unpack(f"<{count}d", data)
    if layout == TUPLES:
        (columns,) = parts
        return zip(*(restore(column, count) for column in columns), strict=True)
    if layout == RECORDS:
        keys, columns = parts
        return _restore_records(keys, [restore(column, count) for column in columns], count)
    if layout == LISTS:
        lengths, items = parts
        items = iter(restore(items, _total(lengths, count)))
        return [list(islice(items, length)) for length in lengths]
    if layout == MAPS:
        lengths, keys, items = parts
        total = _total(lengths, count)
        pairs = zip(restore(keys, total), restore(items, total), strict=True)
        return [dict(islice(pairs, length)) for length in lengths]
    raise ValueError(f"unknown layout {layout!r}")


def _restore_records(
    keys: list[str], columns: Sequence[Iterable[Any]], count: int
) -> list[dict[str, Any]]:
    # Copying a dict and replacing its values is twice as fast as building one from pairs.
    blank: dict[str, Any] = dict.fromkeys(keys)
    records = [blank.copy() for _ in range(count)]
    for key, column in zip(keys, columns, strict=True):
        for record, value in zip(records, column, strict=True):
            record[key] = value
    return records


def _check_count(values: list[Any], count: int) -> None:
    if len(values) != count:
        raise ValueError(f"{len(values)} values instead of {count}")


def _total(lengths: list[int], count: int) -> int:
    _check_count(lengths, count)
    total = sum(lengths)
    if not 0 <= min(lengths) <= total <= _COUNT_MAX:
        raise ValueError(f"{total} elements announced")
    return total
