"""How long to wait before something that failed is tried again."""

from __future__ import annotations

_DOUBLINGS_MAX = 10
"""So many failures in a row make no number too large."""


def pause_s(first_s: float, longest_s: float, failures: int) -> float:
    """The seconds to wait: twice as long after each of the failures so far, `longest_s` at most."""
    return min(longest_s, first_s * 2.0 ** min(failures, _DOUBLINGS_MAX))
