"""Waits that end on time."""

from __future__ import annotations

import select
import selectors

_SHORT_S = 0.05
"""Of a longer wait, a millisecond is nothing."""
_SELECTABLE_MAX = 1024
"""`select` takes descriptors below this number (FD_SETSIZE of select(2))."""


def new_selector() -> selectors.BaseSelector:
    """The best selector of this system, with waits that are not rounded to milliseconds."""
    if hasattr(selectors, "EpollSelector"):
        return _PreciseEpoll()
    return selectors.DefaultSelector()


class _PreciseEpoll(selectors.EpollSelector):
    """An epoll whose timeouts count in microseconds.

    epoll_wait(2) counts in milliseconds, and Python rounds up. But an epoll is a descriptor that can be
    waited for as any other, and select(2) counts in microseconds.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and 0 < timeout < _SHORT_S and self.fileno() < _SELECTABLE_MAX:
            select.select((self.fileno(),), (), (), timeout)
            timeout = 0
        return super().select(timeout)
