"""A checkpoint mode of a family of its own: snapshots by local clocks, and barriers every few checkpoints.

minirt conformance examples.lazy_mode:Lazy

Where it is like `uncoordinated`, no subtask waits for another one. But a checkpoint of such snapshots may
hold records of any edge, and may be as old as the slowest clock. Every `every`-th checkpoint is taken with
barriers: that bounds how far a failure takes a job back.

Source: Y.-M. Wang and W. K. Fuchs, "Lazy Checkpoint Coordination for Bounding Rollback Propagation", 1993.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from minirt.errors import ConfigurationError
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import Barrier
from minirt.protocol.families import Coordinated, Family
from minirt.protocol.ids import SubtaskId
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.protocol.uncoordinated import Uncoordinated as Lines
from minirt.testing.conformance import check_mode


class LazyFamily(Lines):
    """The end at the coordinator: what is ordered for the next checkpoint."""

    def __init__(self, subtasks: Collection[SubtaskId], every: int) -> None:
        super().__init__(subtasks)
        self._every = every
        self._lines = 0
        """How many checkpoints were begun since the last one with barriers."""

    @property
    def ready(self) -> bool:
        """Barriers need no snapshot that was taken before."""
        return self._with_barriers or super().ready

    @property
    def _with_barriers(self) -> bool:
        """Not while a subtask waits for room in its log: only a line makes some."""
        return self._lines >= self._every - 1 and not self.urgent

    def begin(self, generation: int, barrier: Barrier, *, pause: bool) -> SubtaskCommand:
        if self._with_barriers:
            self._lines = 0
            return Coordinated().begin(generation, barrier, pause=pause)
        self._lines += 1
        return super().begin(generation, barrier, pause=pause)


@dataclass(frozen=True)
class Lazy(Uncoordinated):
    """The end at the subtask: local snapshots as in `uncoordinated`, barriers as in `unaligned`."""

    every: int = 3
    """Every so many checkpoints, one is taken with barriers. At least 2."""

    name: ClassVar[str] = "lazy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 2:
            raise ConfigurationError(f"{self.name}: every must be at least 2, got {self.every}")

    def family(self, subtasks: frozenset[SubtaskId]) -> Family:
        return LazyFamily(subtasks, self.every)


if __name__ == "__main__":
    tally = check_mode(Lazy(), runs=8)
    print(f"{tally.runs} runs: {tally.lost} records lost, {tally.duplicated} duplicated")
