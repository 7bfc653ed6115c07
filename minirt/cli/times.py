"""Points in time as people read them."""

from __future__ import annotations

import datetime as dt


def local_time(seconds: float) -> str:
    """Unix seconds as local time, or a text that says so if no clock can show them."""
    try:
        return f"{dt.datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return f"at {seconds} s"
