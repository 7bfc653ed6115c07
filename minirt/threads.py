"""Starts threads that do not end unheard. All threads of minirt are started here."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_thread(
    name: str, body: Callable[[], object], on_error: Callable[[BaseException], object]
) -> threading.Thread:
    """Run `body` in a thread that does not keep the program from ending.

    If anything but its own return ends it, `on_error` gets the error. It is called in that thread, and
    tells those that rely on the thread that it is gone. Raises RuntimeError if no thread can be had.
    """

    def run() -> None:
        try:
            body()
        except BaseException as error:
            on_error(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
