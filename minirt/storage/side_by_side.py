"""Many small accesses at once: each waits for a disk or a server, and no other one for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from minirt.threads import start_thread

AT_ONCE = 16


def side_by_side(access: Callable[[str], None], paths: Sequence[str]) -> None:
    """Call it for each path, in some order. Raises one of the errors once all were tried."""
    left, errors = deque(paths), list[BaseException]()

    def work() -> None:
        with suppress(IndexError):
            while True:
                path = left.popleft()
                try:
                    access(path)
                except Exception as error:
                    errors.append(error)

    threads = []
    with suppress(RuntimeError):  # There are threads enough, or the program is about to end.
        for number in range(min(AT_ONCE, len(paths)) - 1):
            threads.append(start_thread(f"minirt-storage-{number}", work, errors.append))
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
