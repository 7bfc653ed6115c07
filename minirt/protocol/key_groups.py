"""Key groups: the unit in which keyed state is dealt to subtasks, in contiguous ranges."""

from __future__ import annotations

MAX_PARALLELISM_LIMIT = 32768
"""The most key groups that a job may have."""


def subtask_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group."""
    return group * parallelism // max_parallelism


def group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups that a subtask owns: those for which `subtask_of_group` names it."""
    start = -(-subtask * max_parallelism // parallelism)
    stop = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(start, stop)
