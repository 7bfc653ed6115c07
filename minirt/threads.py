"""Starts threads that do not end unheard. All threads of minirt are started here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minirt.errors import ConfigurationError


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


@contextmanager
def repeating(
    name: str,
    interval_s: float,
    call: Callable[[], object],
    on_error: Callable[[BaseException], object],
) -> Iterator[None]:
    """Make a call now and then, in a thread of its own, while the body runs; see `start_thread`."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(interval_s):
            call()

    thread = start_thread(name, repeat, on_error)
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def naming_the_end_of_the_program() -> Iterator[None]:
    """Say what to do where Python refuses threads, since the main thread has ended."""
    try:
        yield
    except RuntimeError as error:
        if threading.main_thread().is_alive():
            raise
        raise ConfigurationError(
            f"the program's main thread has ended, and Python starts no threads after that ({error}): have "
            "the main thread wait for the one that starts the job, by its join()"
        ) from error
