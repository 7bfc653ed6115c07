"""Windows of so many records of a key."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from minirt.errors import ConfigurationError
from minirt.units import positive
from minirt.windows.base import Window


@dataclass(frozen=True, slots=True, init=False)
class CountWindow(Window):
    """`size` records of a key in the order in which they come; a new window begins `every` so many.

    By default `every` is `size`, so windows do not overlap. A window's result is given out with its last
    record. Windows that the end of input finds unfinished give none; they stay in the last checkpoint.
    """

    size: int
    every: int

    def __init__(self, size: int, every: int | None = None) -> None:
        """Raises ConfigurationError."""
        positive("the size of a count window", size)
        every = size if every is None else positive("every, of a count window,", every)
        if every > size:
            raise ConfigurationError(
                f"every must be at most the size of a count window, got {every} and {size}: records "
                "between windows would count nowhere"
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "every", every)

    @property
    def allowed_lateness_ms(self) -> int:  # type: ignore[override]
        return 0

    @property
    def pane(self) -> int:
        """How many records are added up once, however many windows share them."""
        return gcd(self.size, self.every)

    @property
    def shape(self) -> str:
        slide = "" if self.every == self.size else f" every {self.every}"
        return f"windows of {self.size} records{slide}"

    @property
    def in_event_time(self) -> bool:
        return False

    @property
    def bounds(self) -> tuple[str, ...]:
        return ()

    @property
    def has_early_results(self) -> bool:
        return False
