"""What happens to the output of one job, step by step: drawn from a seed, or read from a token."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

from minirt.errors import ConfigurationError
from minirt.testing.sinks.trial import Fault

_STEPS_MAX = 18
_CALLS_MAX = 14
"""Faults strike one of the first so many calls of a step."""

_WEIGHTS = {
    "write": 6,
    "checkpoint": 6,
    "fail": 2,
    "retry": 1,
    "repeat": 2,
    "restart": 2,
    "replace": 2,
    "zombie": 3,
    "zombie discards": 1,
    "stranger": 1,
    "fork": 1,
    "give up": 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `subject` is a subtask, or which of several; a fault strikes the call number `at`."""

    kind: str
    subject: int = 0
    count: int = 0
    at: int | None = None
    fault: str = Fault.KINDS[0]

    def in_words(self) -> str:
        text = f"{self.kind} {self.subject} {self.count}"
        return text if self.at is None else f"{text}, {self.fault} call {self.at}"


@dataclass(frozen=True, slots=True)
class Life:
    """All steps of a life. `seed` says where it was drawn from."""

    seed: int
    steps: tuple[Step, ...] = field(default=())

    @property
    def token(self) -> str:
        """The life as a short text."""
        plain = [[s.kind, s.subject, s.count, s.at, s.fault] for s in self.steps]
        packed = zlib.compress(json.dumps([self.seed, plain]).encode(), 9)
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def from_token(cls, token: str) -> Life:
        """Raises ConfigurationError for what is no token."""
        try:
            packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            seed, plain = json.loads(zlib.decompress(packed))
            return cls(int(seed), tuple(_step(*each) for each in plain))
        except (ValueError, TypeError, zlib.error) as error:
            raise ConfigurationError(f"{token!r} is no token of a life: {error}") from error


def draw_life(seed: int) -> Life:
    """The same seed gives the same life."""
    random = Random(seed)
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    count = random.randint(3, _STEPS_MAX)
    drawn = random.choices(kinds, weights, k=count)
    faulty = random.random() * 0.7
    return Life(seed, tuple(_drawn(kind, faulty, random) for kind in drawn))


def _drawn(kind: str, faulty: float, random: Random) -> Step:
    at = random.randrange(_CALLS_MAX) if random.random() < faulty else None
    fault = random.choice(Fault.KINDS)
    return Step(kind, random.randrange(4), random.randint(1, 3), at, fault)


def _step(kind: Any, subject: Any, count: Any, at: Any, fault: Any) -> Step:
    if kind not in _WEIGHTS or fault not in Fault.KINDS:
        raise ValueError(f"there is no step {kind!r}")
    return Step(kind, int(subject), int(count), None if at is None else int(at), fault)
