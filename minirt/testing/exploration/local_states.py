"""The states of the parts of a job, each reached by real objects once, and known by number from then on.

A part (a subtask with its ends of channels, or the coordinator) acts on nothing but events, and what it
does to others is in the effects of each event. So what an event does in a state needs to be found out
only once, by real objects that were brought into that state by the events that first led there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from minirt.testing.exploration.fingerprint import fingerprint

Event = tuple[Any, ...]
"""What happens to a part: its kind, then plain values."""

_LIVE_MAX = 200
"""How many parts are kept as they were left; any other is led to its state again."""

_CHECKED_EVERY = 20
"""How many parts are led to a state again for each one of which it is checked that it got there."""

_UNREPEATABLE = (
    "the same events have led to another state: a function of the job, or the mode, goes by a clock, "
    "random numbers or global variables"
)

EffectsT = TypeVar("EffectsT", covariant=True)
OffersT = TypeVar("OffersT", covariant=True)


class UnrepeatableError(Exception):
    """The same events have led to another state: the job uses a clock, random numbers or globals."""


class Part(Protocol[EffectsT, OffersT]):
    """Real objects that events can be given to."""

    def apply(self, event: Event) -> EffectsT:
        """Let an event happen; says what it did to others."""

    def repeat(self, event: Event) -> None:
        """Let an event happen again of which it is known what it did to others. It raised nothing then."""

    def offers(self) -> OffersT:
        """What the part could do next by itself."""


Effects = TypeVar("Effects")
Offers = TypeVar("Offers")


class LocalStates(Generic[Effects, Offers]):
    """Numbers states from 1 on, in the order in which they are met. `offers` belongs to each."""

    def __init__(self) -> None:
        self.offers: dict[int, Offers] = {}
        self._numbers: dict[bytes, int] = {}
        self._origins: dict[int, tuple[int, Event] | Callable[[], Part[Effects, Offers]]] = {}
        """How each state was met first: from another one by an event, or as the beginning."""
        self._steps: dict[tuple[int, Event], tuple[int, Effects]] = {}
        self._led = 0
        self._live: OrderedDict[int, Part[Effects, Offers]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._numbers)

    def begin(self, make: Callable[[], Part[Effects, Offers]]) -> int:
        """The state of a part that `make` makes, the same one each time it is called."""
        return self._settle(make(), make)

    def step(self, state: int, event: Event) -> tuple[int, Effects]:
        """The state after an event, and what the event did to others."""
        known = self._steps.get((state, event))
        if known is None:
            part = self._part_in(state)
            effects = part.apply(event)
            known = self._steps[state, event] = (self._settle(part, (state, event)), effects)
        return known

    def _settle(
        self,
        part: Part[Effects, Offers],
        origin: tuple[int, Event] | Callable[[], Part[Effects, Offers]],
    ) -> int:
        state = self._numbers.setdefault(fingerprint(part), len(self._numbers) + 1)
        if state not in self._origins:
            self._origins[state] = origin
            self.offers[state] = part.offers()
        self._live[state] = part
        if len(self._live) > _LIVE_MAX:
            self._live.popitem(last=False)
        return state

    def _part_in(self, state: int) -> Part[Effects, Offers]:
        live = self._live.pop(state, None)
        if live is not None:
            return live
        events: list[Event] = []
        origin = self._origins[state]
        while isinstance(origin, tuple):
            before, event = origin
            events.append(event)
            origin = self._origins[before]
        part = origin()
        try:
            for event in reversed(events):
                part.repeat(event)
        except Exception as error:
            raise UnrepeatableError(_UNREPEATABLE) from error
        self._led += 1
        checked = self._led % _CHECKED_EVERY == 1
        if checked and self._numbers.get(fingerprint(part)) != state:
            raise UnrepeatableError(_UNREPEATABLE)
        return part
