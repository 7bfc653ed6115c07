"""A join most of whose records have one key: one subtask has most of the work, and of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.api.environment import Environment
from minirt.functions import KeyedContext, KeyedCoProcess
from minirt.laboratory.measured import Verification
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.parts import (
    ID,
    KEY,
    MADE,
    Course,
    NumberedSink,
    NumberedSource,
    Record,
    key_of,
    number_in_split,
    steps,
    verify_numbers,
)
from minirt.state.handles import MapState


@dataclass(frozen=True, slots=True)
class SkewedJoin(Workload):
    """source > left and right > join by key > sink, at a pace; `hot_share` of all records have one key.

    Each record is a left one, and the right one of the record of its split `waiting` records before it.
    So the join holds that many records a split, with their texts.
    """

    latency_from: ClassVar = str(MADE)
    """That of the right one, which came last."""
    defaults: ClassVar = Defaults(options={"checkpointing.interval": "1s"})

    records_per_s: float = 10_000.0
    hot_share: float = 0.8
    waiting: int = 2_000
    keys: int = 1000
    payload_chars: int = 100

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment("skewed-join", parallelism=parallelism)
        source = NumberedSource(
            place,
            self.keys,
            steps(*self.course),
            self.payload_chars,
            self.hot_share,
        )
        numbers = env.source(source, uid="numbers")
        left = numbers.key_by(_key)
        late = numbers.filter(_has_partner(self.waiting), uid="late")
        right = late.map(_Right(self.waiting, self.keys, self.hot_share), uid="right").key_by(_key)
        left.connect(right).process(_Pairs(), uid="pairs").sink(NumberedSink(place), uid="out")
        return env

    @property
    def course(self) -> Course:
        """How fast records come: always alike."""
        return ((1.0, max(1.0, self.records_per_s)),)

    def verify(self, place: Place) -> Verification:
        return verify_numbers(place, lambda records: max(0, records - self.waiting))


def _key(record: Any) -> Any:
    return record[KEY]


def _has_partner(waiting: int) -> Callable[[Any], bool]:
    return lambda record: number_in_split(record[ID]) >= waiting


@dataclass(frozen=True)
class _Right:
    """The partner of the record `waiting` before it: with its id and its key."""

    waiting: int
    keys: int
    hot_share: float

    def __call__(self, record: Any) -> Record:
        id = record[ID] - self.waiting
        return (id, key_of(number_in_split(id), self.keys, self.hot_share), record[MADE], "")


class _Pairs(KeyedCoProcess):
    """Whichever of two partners comes first waits for the other."""

    lefts = MapState()
    rights = MapState()

    def process_left(self, record: Any, ctx: KeyedContext) -> Iterator[Any]:
        made = self.rights.pop(record[ID], None)
        if made is None:
            self.lefts[record[ID]] = record[3]
        else:
            yield (record[ID], record[KEY], made, record[3])

    def process_right(self, record: Any, ctx: KeyedContext) -> Iterator[Any]:
        text = self.lefts.pop(record[ID], None)
        if text is None:
            self.rights[record[ID]] = record[MADE]
        else:
            yield (record[ID], record[KEY], record[MADE], text)
