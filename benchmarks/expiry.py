"""How long state that expires holds up records, and that its memory falls back.

    python -m benchmarks.expiry [--array-keys 10000000] [--keys 1000000]

All keys are written at once, in columns to an `aggregate(ttl=...)` and one by one to a `ValueState`.
Later they expire at once; of the aggregate, one in a hundred stays. A pause is a piece of work between
two records.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

import minirt as rt
from benchmarks.one_operator import alone, memory_mb
from minirt.data.batch import Columns
from minirt.data.custody import Custody
from minirt.kernels.choice import AUTO, choose_kernels
from minirt.operators.aggregate import AggregateSpec
from minirt.state.binding import bind_states
from minirt.state.expiring import Sweeper
from minirt.state.expiry import EventClock
from minirt.state.keyed import KeyedState

_BATCH = 1024
_COLUMNS_BATCH = 65_536
_TTL_S = 60.0


class Seen:
    one = rt.ValueState(ttl="1s", clock="event")


class _Clock:
    """The monotonic clock, put forward so that keys expire."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.perf_counter() + self.ahead_s


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--array-keys", type=int, default=10_000_000, help="of the aggregate")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the ValueState")
    parser.add_argument("--stays", type=int, default=100, help="one key of so many stays")
    parser.add_argument("--text", action="store_true", help="keys of the aggregate are texts")
    args = parser.parse_args(arguments)
    print(f"kernels: {choose_kernels(AUTO).name}; memory at first: {memory_mb()} MB")
    if args.array_keys:
        _expire_arrays(args.array_keys, args.stays, text=args.text)
    if args.keys:
        _expire_values(args.keys)


def _expire_arrays(keys: int, stays: int, *, text: bool) -> None:
    clock = _Clock()
    aggregates = (rt.Count("count"), rt.Sum("n", "sum"), rt.Max("n", "most"))
    operator = alone(AggregateSpec(aggregates, "end", int(_TTL_S * 1000)), "key", clock=clock)
    began_at = time.perf_counter()
    for first in range(0, keys, _COLUMNS_BATCH):
        numbers = np.arange(first, min(keys, first + _COLUMNS_BATCH))
        operator.process(_columns(numbers, text=text), 0)
    _say_written("aggregate", keys, began_at)
    clock.ahead_s += _TTL_S / 2
    for first in range(0, keys, _COLUMNS_BATCH * stays):
        numbers = np.arange(first, min(keys, first + _COLUMNS_BATCH * stays), stays)
        operator.process(_columns(numbers, text=text), 0)
    clock.ahead_s += _TTL_S / 2 + 1

    def left() -> int:
        return len(operator._table)  # type: ignore[attr-defined]

    def piece() -> bool:
        due_at = operator.due_at
        if due_at is None or due_at > clock() + 1:
            return False
        clock.ahead_s += max(0.0, due_at - clock())
        assert operator.on_due() is None
        return True

    _say_removed(piece, left)


def _columns(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], *, text: bool) -> Columns:
    keys = pa.array(numbers)
    if text:
        keys = pa.array([f"user {number:012}" for number in numbers.tolist()])
    return Columns(pa.RecordBatch.from_arrays([keys, pa.array(numbers)], ["key", "n"]))


def _expire_values(keys: int) -> None:
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
    _say_written("ValueState", keys, began_at)
    sweeper = Sweeper(states, lambda: 0.0)
    now[0] = 5000

    def piece() -> bool:
        if sweeper.due_at is None:
            return False
        sweeper.sweep()
        return True

    _say_removed(piece, lambda: sum(state.entries().values()))


def _say_written(what: str, keys: int, began_at: float) -> None:
    rate = keys / (time.perf_counter() - began_at) / 1e6
    print(f"{what}: {keys:,} keys written, {rate:.2f} M keys/s; memory: {memory_mb()} MB")


def _say_removed(piece: Callable[[], bool], left: Callable[[], int]) -> None:
    pauses = []
    while True:
        began_at = time.perf_counter()
        if not piece():
            break
        pauses.append(time.perf_counter() - began_at)
    longest, mean = max(pauses) * 1000, sum(pauses) / len(pauses) * 1000
    print(
        f"  removed in {len(pauses)} pieces: longest pause {longest:.1f} ms, mean {mean:.2f} ms; "
        f"{left():,} left; memory: {memory_mb()} MB"
    )


if __name__ == "__main__":
    main()
