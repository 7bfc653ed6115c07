"""Windows with large state: many keys, of which each has an entry in every open window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.aggregates import Count, Max, Sum
from minirt.api.environment import Environment
from minirt.laboratory.measured import Verification
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.parts import ID, KEY, MADE, NumberedSource, number_in_split
from minirt.laboratory.workloads.tally import TallySink, check_number, verify_tally
from minirt.watermarks import Watermarks
from minirt.windows import Tumbling


@dataclass(frozen=True, slots=True)
class Windowed(Workload):
    """source > key_by > tumbling window: count, check, newest > sink; nothing is slow but the work itself.

    A split has a record for each millisecond of event time, and a window is `window_records` of them. So
    up to `keys` entries of state are open, and all change between two checkpoints: synchronous and
    asynchronous parts grow with them. The results of a window come at once, in a burst.
    """

    latency_from: ClassVar = "made"
    """That of the newest record in a window: how long its result waited for the end of the window."""
    defaults: ClassVar = Defaults(options={"checkpointing.interval": "1s"})

    keys: int = 200_000
    window_records: int = 100_000

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment("windowed", parallelism=parallelism)
        by_number = Watermarks.monotonous(timestamp=lambda record: number_in_split(record[ID]))
        source = NumberedSource(place, self.keys, payload_chars=0)
        (
            env.source(source, uid="numbers", watermarks=by_number)
            .map(_named, uid="named")
            .key_by("key")
            .window(Tumbling(f"{max(1, self.window_records)}ms"))
            .aggregate(Count("records"), Sum("check", "check"), Max("made", "made"), uid="windows")
            .sink(TallySink(place), uid="out")
        )
        return env

    def verify(self, place: Place) -> Verification:
        return verify_tally(place)


def _named(record: Any) -> dict[str, int]:
    return {"key": record[KEY], "check": check_number(record[ID]), "made": record[MADE]}
