"""A join with large state: each record waits long for its partner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.api.environment import Environment
from minirt.laboratory.measured import Verification
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.parts import (
    ID,
    MADE,
    NumberedSink,
    NumberedSource,
    first_id_of_split,
    number_in_split,
    verify_numbers,
)
from minirt.watermarks import Watermarks


@dataclass(frozen=True, slots=True)
class Joined(Workload):
    """source > left and right > interval join > sink; nothing is slow but the work itself.

    Of the records of a split, every second one is of the left. Its partner of the right comes `waiting`
    such pairs later, so the join holds that many records a split, with their texts.
    """

    latency_from: ClassVar = str(MADE)
    """That of the partner, which came last."""
    defaults: ClassVar = Defaults(options={"checkpointing.interval": "1s"})

    waiting: int = 20_000
    payload_chars: int = 100

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment("joined", parallelism=parallelism)
        by_number = Watermarks.monotonous(timestamp=lambda record: number_in_split(record[ID]))
        source = NumberedSource(place, keys=1, payload_chars=self.payload_chars)
        numbers = env.source(source, uid="numbers", watermarks=by_number)
        left = numbers.filter(_is_left, uid="left").map(_sent, uid="sent")
        right = numbers.filter(_answers(self.waiting), uid="right").map(
            _Answer(self.waiting), uid="answer"
        )
        (
            left.join(right, on="pair", within=(0, f"{2 * self.waiting + 1}ms"), uid="pairs")
            .map(_numbered, uid="numbered")
            .sink(NumberedSink(place), uid="out")
        )
        return env

    def verify(self, place: Place) -> Verification:
        return verify_numbers(place, lambda records: max(0, records // 2 - self.waiting))


def _is_left(record: Any) -> bool:
    return bool(record[ID] % 2 == 0)


def _answers(waiting: int) -> Callable[[Any], bool]:
    """Whether a record is of the right, and its partner was there."""
    return lambda record: record[ID] % 2 == 1 and number_in_split(record[ID]) // 2 >= waiting


def _pair(id: int, waiting: int) -> int:
    """The number of a pair: that of its split, and below the number of the pair in that split."""
    return first_id_of_split(id) + number_in_split(id) // 2 - waiting


def _sent(record: Any) -> dict[str, Any]:
    return {"pair": _pair(record[ID], 0), "text": record[3]}


@dataclass(frozen=True)
class _Answer:
    waiting: int

    def __call__(self, record: Any) -> dict[str, Any]:
        return {"pair": _pair(record[ID], self.waiting), "made": record[MADE]}


def _numbered(row: Any) -> tuple[int, int, int, str]:
    return row["pair"], 0, row["made"], row["text"]
