"""What goes wrong in a simulation: how much at most, and when by the seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random

from minirt.operators.common.calling import EndOfProcess

_RATES = (1 / 20, 1 / 60, 1 / 150, 1 / 400)
"""How often something strikes, per step; a simulation draws one of them."""

_BURST_RATE = 1 / 8
_BURST_STEPS = 30
"""How long further crashes are likely: the worst ones come while a job still recovers from one."""

_PEACE_ROUNDS = (0, 0, 3, 8)

_OPERATION_RATES = (0.01, 0.05, 0.2)
"""How often an operation on storage fails, or its process dies at it."""

INJECTED = "injected fault"
"""Part of the message of every error that the simulator raises on purpose."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often each kind of fault strikes at most in one simulation. The seed draws the real numbers.

    All are bounded, so after some time the job is left alone and must finish.
    """

    worker_crashes: int = 2
    """A worker process vanishes with its subtasks, and what is under way to and from it."""
    user_errors: int = 1
    """An operator raises in the middle of a batch."""
    hangs: int = 1
    """A worker stops turning, for a while or until its silence is noticed."""
    coordinator_crashes: int = 2
    """The coordinator vanishes and is started again with `restore="latest"`."""
    zombies: int = 1
    """The coordinator is taken for dead and replaced, but only slept, and goes on for a while."""
    storage_errors: int = 4
    """An operation on storage fails before or after it had its effect."""
    slow_storage: int = 3
    """A snapshot takes many steps to be stored."""
    unexpected_errors: int = 2
    """Something raises in a storage command or an upload that is no error of storage."""
    clock_jumps: int = 2
    """The wall clock is set back or forward, by up to an hour, and right again some steps later."""
    full_disks: int = 0
    """Storage has no room left for a while, or next to none."""
    lost_connections: int = 0
    """A worker lives on for a while, but it and the coordinator do not hear each other any more."""

    @classmethod
    def none(cls) -> Faults:
        """Nothing goes wrong; the schedule is as random as ever."""
        return cls(**dict.fromkeys((field.name for field in fields(cls)), 0))


class InjectedFaultError(Exception):
    """Raised by the simulator in the place of user code or storage."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{INJECTED}: {where}")


class ProcessDiedError(EndOfProcess):
    """Ends whatever a simulated process was doing; nothing that runs in the process may catch it."""


class Chaos:
    """Draws when faults strike, and counts them by kind.

    Before the first one there may be peace, of a few rounds of `round_steps`: else there would be
    nothing yet to lose.
    """

    def __init__(self, faults: Faults, random: Random, round_steps: int) -> None:
        self._random = random
        self._peace_left = random.choice(_PEACE_ROUNDS) * round_steps
        self._left = {
            field.name: random.randint(0, most) if most or field.default else 0
            for field in fields(faults)
            for most in [getattr(faults, field.name)]
        }
        self._rate = random.choice(_RATES)
        self._operation_rate = random.choice(_OPERATION_RATES)
        self._burst_left = 0
        self.struck: Counter[str] = Counter()

    def is_due(self) -> bool:
        """Whether something strikes in this step; to be asked once a step."""
        if self._peace_left:
            self._peace_left -= 1
            return False
        self._burst_left -= 1
        rate = _BURST_RATE if self._burst_left > 0 else self._rate
        return self._random.random() < rate

    def strike(self, kinds: Sequence[str]) -> str | None:
        """Which of these kinds of fault it is, if any is left."""
        possible = [kind for kind in kinds if self._left[kind]]
        if not possible:
            return None
        kind = self._random.choice(possible)
        if self._random.random() < 0.3:
            self._burst_left = _BURST_STEPS
        return self._count(kind)

    def strikes_operation(self, kind: str) -> bool:
        """Whether a fault of this kind strikes an operation on storage."""
        if self._peace_left or not self._left[kind]:
            return False
        if self._random.random() >= self._operation_rate:
            return False
        self._count(kind)
        return True

    def unexpected_error(self, where: str) -> BaseException | None:
        """What nobody expects of an operation on storage, if it strikes."""
        if not self.strikes_operation("unexpected_errors"):
            return None
        kind = self._random.choice((InjectedFaultError, TypeError, RecursionError, SystemExit))
        return kind(f"{INJECTED}: {where}")

    def _count(self, kind: str) -> str:
        self._left[kind] -= 1
        self.struck[kind] += 1
        return kind
