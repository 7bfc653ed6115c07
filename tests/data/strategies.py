"""Values of every type that can be sent, for property tests."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

ZONES = st.one_of(
    st.none(),
    st.sampled_from([dt.UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")]),
    st.builds(
        dt.timezone,
        st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
    ),
)
ANY_TEXT = st.text(st.characters())
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    ANY_TEXT,
    st.binary(),
    st.datetimes(timezones=ZONES),
    st.dates(),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
NUMPY_SCALARS = st.sampled_from(
    [
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.longlong(5),
        np.float32(0.1),
        np.float64("nan"),
        np.complex128(1 + 2j),
        np.bool_(True),
        np.str_("é\0x"),
        np.str_(""),
        np.bytes_(b"ab"),
        np.datetime64("2024-02-03T04:05:06.789", "ns"),
        np.datetime64("NaT", "ns"),
        np.timedelta64(5, "h"),
    ]
)
ARRAYS = hnp.arrays(
    st.sampled_from(["<i8", ">i4", "u1", "f4", "?", "c16", "<M8[ms]"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
HASHABLE = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(), st.tuples(inner), st.tuples(inner, inner), st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(ATOMS, st.decimals(), NUMPY_SCALARS, ARRAYS, st.binary().map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
    ),
    max_leaves=8,
)

KEYS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=-(2**70), max_value=2**70),
        ANY_TEXT,
        st.binary(),
        st.dates(),
        st.datetimes(timezones=ZONES),
        st.uuids(),
    ),
    lambda inner: st.one_of(st.tuples(), st.tuples(inner), st.tuples(inner, inner)),
    max_leaves=4,
)
