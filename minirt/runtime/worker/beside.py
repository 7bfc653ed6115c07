"""Makes calls of operators beside the record path, in threads that are started when they are needed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from minirt.threads import start_thread

_THREADS_MAX = 16
"""How many calls are made at a time; the rest wait in order."""

Call = Callable[[], None]


class Beside:
    """Makes calls in threads of its own. A thread whose call raises calls `on_error`, and ends."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._changed = threading.Condition()
        self._calls: deque[Call] = deque()
        self._idle = 0
        self._threads = 0

    def run(self, call: Call) -> None:
        """Have the call made soon."""
        with self._changed:
            self._calls.append(call)
            if self._idle < len(self._calls) and self._threads < _THREADS_MAX:
                self._threads += 1
                start_thread("beside the record path", self._make_calls, self._on_error)
            else:
                self._changed.notify()

    def _make_calls(self) -> None:
        while True:
            self._take()()

    def _take(self) -> Call:
        with self._changed:
            self._idle += 1
            while not self._calls:
                self._changed.wait()
            self._idle -= 1
            return self._calls.popleft()
