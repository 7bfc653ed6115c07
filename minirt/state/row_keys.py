"""Keys of rows, of any type, as two columns of a table of array state.

The first is the number whose hash as a column is the hash of the key: so a table finds the key group of a
key by it, and no key needs a type that columns have. The second tells keys of one hash apart.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.data import hashing
from minirt.data.civil_time import Nanoseconds, plain_datetime
from minirt.data.keys import hash_keys
from minirt.data.values import pack_value

HASHED, PACKED = "\x1ehashed", "\x1epacked"
"""The names of the two columns."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def key_columns(keys: Sequence[Any]) -> list[pa.Array]:
    """Both columns of keys that `distinct_keys` gave. Raises UnstableKeyError."""
    distinct = list(dict.fromkeys(keys))
    place_of = {key: place for place, key in enumerate(distinct)}
    places = np.fromiter(map(place_of.__getitem__, keys), np.intp, len(keys))
    hashed = hashing.unmix_array(hash_keys(distinct), hashing.INT).view(np.int64)
    packed = pa.array([pack_value(plain(key)) for key in distinct], pa.large_binary())
    return [pa.array(hashed[places]), packed.take(pa.array(places))]


def plain(key: Any) -> Any:
    """The key in a form that is stored alike whenever keys are equal."""
    if isinstance(key, tuple):
        return tuple(map(plain, key))
    if isinstance(key, bool | np.bool_ | np.integer):
        return int(key)
    if isinstance(key, np.str_):
        return str(key)
    if isinstance(key, dt.datetime):
        return _instant(key)
    return key


def _instant(time: dt.datetime) -> dt.datetime | dt.timedelta | tuple[object, list[int]]:
    """A time of a zone as one in UTC: equal times of several zones are one instant."""
    if isinstance(time, Nanoseconds):
        # No key has a list inside.
        return _instant(plain_datetime(time)), [time.nanosecond]
    time = plain_datetime(time)
    if time.tzinfo is None:
        return time
    try:
        return time.astimezone(dt.UTC)
    except (
        OverflowError
    ):  # An instant before the year 1 or after 9999 is none of UTC; no key is a span.
        return time - _EPOCH
