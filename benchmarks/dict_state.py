"""What checkpoints of large state in dicts cost: `python -m benchmarks.dict_state`.

The keyed state of one subtask, without a job around it, as a `reduce` or a `ValueState` has it. The first
snapshot holds all keys; then a share of them changes ahead of each further one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from benchmarks.measure import milliseconds, print_rows
from minirt.state.keyed import KeyedState
from minirt.state.sections import section_bytes

BATCH = 4096
NAME = "value"


def update(state: KeyedState, keys: Sequence[int], value: int) -> None:
    table = state.table(NAME)
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        state.change(batch)
        table.update((key, (key, value)) for key in batch)


def write(state: KeyedState, path: str) -> tuple[bytes, float]:
    """A snapshot as bytes, and how long its synchronous part took, in seconds."""
    began = time.perf_counter()
    sections = state.snapshot()
    sync_s = time.perf_counter() - began
    stored = section_bytes(sections[NAME])
    state.on_stored(path)
    return stored, sync_s


def restore_s(files: Sequence[bytes], count: int) -> float:
    began = time.perf_counter()
    state = KeyedState(128, range(128))
    for file in files:
        state.restore({NAME: file}, filter_groups=False)
    assert len(state.table(NAME)) == count
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.2, help="of the keys change in between")
    parser.add_argument("--rounds", type=int, default=5, help="snapshots behind the first one")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args(arguments)
    first_s, sync_s, restored_s, sizes = [], [], [], []
    for _ in range(options.rounds):
        state, keys = KeyedState(128, range(128)), list(range(options.keys))
        update(state, keys, 0)
        whole, taken_s = write(state, "whole")
        first_s.append(taken_s)
        restored_s.append(restore_s([whole], options.keys))
    for number in range(options.rounds):
        update(state, random.Random(number).sample(keys, int(options.share * options.keys)), number)
        changes, taken_s = write(state, f"{number}")
        sync_s.append(taken_s)
        sizes.append(len(changes))
    row = {
        "case": f"dict-state: {options.share:.0%} changed",
        "keys": options.keys,
        "whole_mb": round(len(whole) / 1e6, 1),
        "first_sync_ms": milliseconds(first_s),
        "written_share": round(sum(sizes) / len(sizes) / len(whole), 3),
        "sync_ms": milliseconds(sync_s),
        "restore_s": round(min(restored_s), 2),
    }
    print_rows([row], options.json)


if __name__ == "__main__":
    main()
