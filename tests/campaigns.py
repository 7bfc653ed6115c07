"""How long the simulated campaigns among the tests are: `make soak` takes many times as many runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from minirt.modes import MODES

FEW = 5
"""So many seeds a search takes at most that begins with the right one."""
MIXED = 5
"""From this seed on the first few draw every interval between checkpoints."""
GROWN = f"a search takes more than {FEW} seeds"

KINDS_OF_MODES = ("aligned", "unaligned", "uncoordinated", "at_least_once")
"""Barriers that wait, barriers that overtake, no barriers, and the weaker promise: others are variants."""

FACTOR = int(os.environ.get("CAMPAIGN_FACTOR", "1"))


def runs(count: int) -> int:
    """How many runs a campaign takes that needs so many to show something."""
    return FACTOR * count


def sampled(count: int, one_in: int = 4) -> int:
    """How many runs a campaign takes of which each is judged: in `make test` only one in so many."""
    return -(-count // one_in) if FACTOR == 1 else runs(count)


def soaked(*values: object) -> list[Any]:
    """Parameters of a test that only `make soak` takes, as others of the test are like them."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def modes(*, exactly_once: bool = False) -> list[Any]:
    """Names of the built-in modes, for a test that asks of each what other tests ask of all, too.

    `make test` takes one of each kind.
    """
    asked = [name for name, mode in MODES.items() if mode.exactly_once or not exactly_once]
    kinds = [name for name in asked if name in KINDS_OF_MODES]
    return [*kinds, *soaked(*(name for name in asked if name not in kinds))]


def seeds(count: int, first: int = 0) -> Iterator[int]:
    """All seeds below `count`, for a search that ends with what it finds.

    It begins with `first`, under which it was found when the test was written: most of such a search
    repeats what other tests do. A search that has grown says among the warnings of pytest where it ended.
    """
    tried, seed = 0, first
    # What is raised at the end of a generator may come up in another test.
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    try:
        for seed in chain(range(first, count), range(first)):
            tried += 1
            yield seed
    finally:
        if tried > FEW:
            told = f"{GROWN} from {first} on: begin it with {seed}: {test}"
            warnings.warn(told, stacklevel=2)
