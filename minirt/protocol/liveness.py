"""Which workers are silent for too long. Times are seconds."""

from __future__ import annotations


class Liveness:
    """Remembers when each worker was last seen; a worker counts from its first sign of life."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._last_seen: dict[int, float] = {}

    def on_seen(self, worker: int, now: float) -> None:
        self._last_seen[worker] = now

    def silent(self, now: float) -> list[tuple[int, float]]:
        """Workers and how long they have been silent, where that exceeds the timeout."""
        return [
            (worker, now - seen)
            for worker, seen in sorted(self._last_seen.items())
            if now - seen > self.timeout_s
        ]

    def reset(self) -> None:
        """Forget all workers: a new generation starts with others."""
        self._last_seen.clear()
