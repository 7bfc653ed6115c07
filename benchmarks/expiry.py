"""How long state that expires holds up records: `python -m benchmarks.expiry --keys 1000000`.

All keys are written within one second of event time, and later expire at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import minirt as rt
from minirt.data.custody import Custody
from minirt.state.binding import bind_states
from minirt.state.expiring import Sweeper
from minirt.state.expiry import EventClock
from minirt.state.keyed import KeyedState

_BATCH = 1024


class Seen:
    one = rt.ValueState(ttl="1s", clock="event")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args(arguments).keys
    now = [0]
    clock = EventClock(lambda: now[0], lambda: now[0])
    state, seen = KeyedState(128, range(128)), Seen()
    states = bind_states(seen, state, Custody(), {"event": clock, "processing": clock})
    began_at = time.perf_counter()
    for first in range(0, keys, _BATCH):
        batch = range(first, min(keys, first + _BATCH))
        state.change(batch)
        for state.key in batch:
            seen.one.set(1)
    print(f"written: {keys / (time.perf_counter() - began_at) / 1e6:.2f} M keys/s")
    sweeper = Sweeper(states, lambda: 0.0)
    now[0] = 5000
    pauses = []
    while sweeper.due_at is not None:
        began_at = time.perf_counter()
        sweeper.sweep()
        pauses.append(time.perf_counter() - began_at)
    longest, mean = max(pauses) * 1000, sum(pauses) / len(pauses) * 1000
    left = sum(state.entries().values())
    print(f"removed: longest pause {longest:.1f} ms, mean {mean:.2f} ms; left: {left}")


if __name__ == "__main__":
    main()
