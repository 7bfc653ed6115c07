"""Makes a life that goes wrong smaller, as long as it goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minirt.testing.sinks.lives import Life
from minirt.testing.sinks.trial import SinkTrial
from minirt.testing.sinks.world import Outcome, play

_PLAYS_MAX = 2000


def shrink(outcome: Outcome, trial: SinkTrial, plays_max: int = _PLAYS_MAX) -> Outcome:
    """The outcome of the smallest life that was found to go wrong, perhaps `outcome`."""
    left = plays_max
    found = True
    while found:
        found = False
        for candidate in smaller(outcome.life):
            if left == 0:
                return outcome
            left -= 1
            tried = play(candidate, trial)
            if tried.wrong:
                outcome, found = tried, True
                break
    return outcome


def smaller(life: Life) -> Iterator[Life]:
    """The ways to make a life a little smaller, the boldest first."""
    steps = life.steps
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps), size):
            yield replace(life, steps=steps[:start] + steps[start + size :])
        size //= 2
    for place, step in enumerate(steps):
        simpler = []
        if step.at is not None:
            simpler += [replace(step, at=None), replace(step, at=step.at - 1 if step.at else None)]
        if step.subject:
            simpler.append(replace(step, subject=step.subject - 1))
        if step.count > 1:
            simpler.append(replace(step, count=1))
        for one in simpler:
            yield replace(life, steps=(*steps[:place], one, *steps[place + 1 :]))
