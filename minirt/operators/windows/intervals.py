"""Intervals of keys that touch each other, joined."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def joined(keys: Numbers, starts: Numbers, ends: Numbers) -> Numbers:
    """For each interval the number of the joined one that it is part of: 0, 1, 2 and so on.

    Intervals of a key are joined where they overlap or where one begins at the end of another. Those that
    are joined are numbered by key, then by time. `ends` are behind `starts`.
    """
    order = np.lexsort((starts, keys))
    by_key, begins = keys[order], starts[order]
    # How far all intervals of the key reach up to here: ranks of ends grow from key to key.
    distinct, ranks = np.unique(ends[order], return_inverse=True)
    first = np.append(True, by_key[1:] != by_key[:-1])
    turns = np.cumsum(first) - 1
    reach = distinct[np.maximum.accumulate(turns * len(distinct) + ranks) % len(distinct)]
    new = first.copy()
    new[1:] |= begins[1:] > reach[:-1]
    found = np.empty(len(keys), np.int64)
    found[order] = np.cumsum(new) - 1
    return found
