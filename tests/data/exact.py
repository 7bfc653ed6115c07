"""Equality as the codec promises it: same types at every depth, same order of keys, same bits."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import numpy as np


def assert_exact(found: Any, expected: Any) -> None:
    """Fail unless both are equal and of equal types, all the way down."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_exact(one, other)
    elif isinstance(expected, dict):
        assert_exact(list(found), list(expected))
        assert_exact(list(found.values()), list(expected.values()))
    elif isinstance(expected, set | frozenset):
        assert _canonical(found) == _canonical(expected)
    elif type(expected) is float:
        assert struct.pack("d", found) == struct.pack("d", expected)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
        assert found.flags.writeable
    elif isinstance(expected, np.generic):
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, dt.datetime | dt.time):
        assert (found.replace(tzinfo=None), found.fold) == (
            expected.replace(tzinfo=None),
            expected.fold,
        )
        assert repr(found.tzinfo) == repr(expected.tzinfo)
    else:
        assert repr(found) == repr(expected)


def _canonical(value: object) -> str:
    """Text that tells types and does not depend on the order in a set."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_canonical, value))})"
    if isinstance(value, set | frozenset):
        return f"{type(value)} {sorted(map(_canonical, value))}"
    return f"{type(value)} {value!r}"
