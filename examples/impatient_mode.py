"""A custom checkpoint mode: aligned, but a barrier that comes late overtakes from there on.

minirt conformance examples.impatient_mode:Impatient
"""

from minirt.protocol.barriers import (
    Alignment,
    BlockChannel,
    Command,
    StopCapture,
    TakeSnapshot,
    unaligned_snapshot,
)
from minirt.testing.conformance import check_mode


class Impatient:
    """Stores in-flight data only where queues are long enough to hold a barrier up."""

    name = "impatient"
    exactly_once = True
    patience_s = 0.5

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return [StopCapture(channel)]
        if alignment.age_s > self.patience_s:
            return unaligned_snapshot(alignment, f"a barrier took {alignment.age_s:.3f} s")
        return []

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return []
        if not alignment.all_reached:
            return [BlockChannel(channel)]
        return [TakeSnapshot(alignment.barrier)]

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return []


if __name__ == "__main__":
    tally = check_mode(Impatient(), runs=8)
    print(f"{tally.runs} runs: {tally.lost} records lost, {tally.duplicated} duplicated")
    print("records were stored in flight:", tally.in_flight > 0)
