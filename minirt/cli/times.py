"""Points in time as people read them."""

from __future__ import annotations

import datetime as dt


def local_time(seconds: float) -> str:
    """Unix seconds as local time; what no clock can show is said to be that."""
    try:
        return f"{dt.datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return f"at {seconds} s"
