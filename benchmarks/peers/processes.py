"""Runs a peer in as many processes as it has parallelism, for systems that do not start them themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


def in_processes(run: Callable[[T, int], None], work: T, count: int) -> None:
    """Call `run` with the work and a number in each of `count` forks; exit as the worst of them does."""
    fork = get_context("fork")
    processes = [fork.Process(target=run, args=(work, number)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in processes))
