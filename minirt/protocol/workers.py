"""Whether the workers of a generation come up, and whether they are still there."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SetTimer, Timer, TimerKind
from minirt.protocol.reasons import GenerationFailure, GenerationFailureReason

_LOOKS = 4
"""How often the coordinator looks for silent workers while one may be silent."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the coordinator waits for workers, in seconds."""

    connect_s: float
    """For all of them to connect."""
    start_s: float
    """From there on, for all subtasks to start."""
    silence_s: float
    """For the next sign of life of each."""


class Workers:
    """Those of the generation that runs. A worker counts as silent only after its first sign of life."""

    def __init__(self, subtasks: frozenset[SubtaskId], patience: Patience) -> None:
        self._subtasks = subtasks
        self._patience = patience
        self._generation = 0
        self._connected = False
        self._started: set[SubtaskId] = set()
        self._last_seen: dict[int, float] = {}

    @property
    def have_started(self) -> bool:
        """Whether all subtasks have."""
        return self._started >= self._subtasks

    def on_deployed(self, generation: int, now: float) -> list[SetTimer]:
        """Forget those of the generation before."""
        self._generation = generation
        self._connected = False
        self._started.clear()
        self._last_seen.clear()
        connect = Timer(TimerKind.CONNECT, generation)
        return [SetTimer(connect, now + self._patience.connect_s), self._look_again(now)]

    def on_connected(self, now: float) -> list[SetTimer]:
        self._connected = True
        return [SetTimer(Timer(TimerKind.START, self._generation), now + self._patience.start_s)]

    def on_gone(self, worker: int | None) -> None:
        """A worker comes back alone: until then its silence says nothing."""
        if worker is not None:
            self._last_seen.pop(worker, None)

    def on_seen(self, worker: int, now: float) -> None:
        self._last_seen[worker] = now

    def on_started(self, subtask: SubtaskId) -> None:
        self._started.add(subtask)

    def on_timer(self, timer: Timer, now: float) -> GenerationFailure | list[SetTimer]:
        """Why the generation should fail by now, or when to look again."""
        why, patience = GenerationFailureReason, self._patience
        match timer.kind:
            case TimerKind.CONNECT if not self._connected:
                return GenerationFailure(why.NOT_CONNECTED, seconds=patience.connect_s)
            case TimerKind.START if not self.have_started:
                # A worker gives signs of life while user code hangs in `open`: only this finds it.
                missing = len(self._subtasks - self._started)
                return GenerationFailure(why.NOT_STARTED, count=missing, seconds=patience.start_s)
            case TimerKind.LIVENESS:
                for worker, seen in sorted(self._last_seen.items()):
                    if now - seen > patience.silence_s:
                        return GenerationFailure(why.SILENT, seconds=now - seen, worker=worker)
                return [self._look_again(now)]
        return []

    def _look_again(self, now: float) -> SetTimer:
        """For silent workers: from the start, since one may hang before it is up."""
        look = Timer(TimerKind.LIVENESS, self._generation)
        return SetTimer(look, now + self._patience.silence_s / _LOOKS)
