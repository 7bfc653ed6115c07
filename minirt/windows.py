"""Windows of event time: which stretch of time a record of a keyed stream counts for."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.errors import ConfigurationError
from minirt.units import Duration, milliseconds

_LONGEST_MS = 100_000 * 86_400_000
"""Windows of 270 years end within what 64 bits of milliseconds can tell, whatever their event time."""


@dataclass(frozen=True, slots=True, init=False)
class Tumbling:
    """Windows of equal size that follow each other without gap or overlap.

    They begin at multiples of `size` since 1970 UTC, shifted by `offset`, which is less than `size`. A
    window's results are given out when the watermark reaches its end. Records that come up to
    `allowed_lateness` after that still count: then results are given out once more.
    """

    size_ms: int
    offset_ms: int
    allowed_lateness_ms: int

    def __init__(
        self, size: Duration, *, offset: Duration = 0, allowed_lateness: Duration = 0
    ) -> None:
        """Raises ConfigurationError."""
        size_ms = milliseconds(size, "the size of a window")
        offset_ms = milliseconds(offset, "the offset of windows")
        if size_ms < 1:
            raise ConfigurationError(f"the size of a window must be at least 1ms, got {size!r}")
        if size_ms > _LONGEST_MS:
            raise ConfigurationError(f"the size of a window must be at most 100000d, got {size!r}")
        if offset_ms >= size_ms:
            raise ConfigurationError(
                f"the offset of windows must be less than their size, got {offset!r} and {size!r}"
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "offset_ms", offset_ms)
        lateness_ms = milliseconds(allowed_lateness, "allowed_lateness")
        object.__setattr__(self, "allowed_lateness_ms", lateness_ms)
