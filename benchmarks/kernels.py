"""What kernels cost in one process: `python -m benchmarks.kernels`.

Each kernel with each implementation in turn, on batches of 16,384 records; nanoseconds a record, the least
of the rounds. What a job gains is for `benchmarks.throughput` to tell.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.measure import print_table
from minirt.data import hashing
from minirt.data.hashing import U64
from minirt.kernels.choice import IMPLEMENTATIONS, choose_kernels
from minirt.kernels.contract import EMPTY, Kernels, Table

RECORDS = 16_384
CALLS = 20
KEYS = {"1,000 keys": 1_000, "1 million keys": 1_000_000}

Work = Callable[[Kernels], object]


def table_of(keys: int) -> tuple[Table, U64]:
    """A table as the index of so many keys has, and the hashes in it."""
    known = hashing.mix_array(np.arange(keys, dtype=np.uint64), hashing.INT)
    table = np.full(1 << (2 * keys - 1).bit_length(), EMPTY, np.int32)
    choose_kernels("numpy").kernels.enlist(table, known, np.arange(keys))
    return table, known


def works() -> Mapping[str, Work]:
    """What is measured, by its name."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 1 << 63, RECORDS, np.uint64)
    text = rng.integers(97, 123, 13 * RECORDS, np.uint8)
    offsets = np.arange(0, 13 * (RECORDS + 1), 13, dtype=np.int64)
    rows = np.arange(RECORDS)
    owners = np.repeat(np.arange(2, dtype=np.uint8), 64)
    targets = owners[numbers % np.uint64(128)]
    targets_of_8 = (numbers % np.uint64(8)).astype(np.uint8)
    chosen = rng.random(RECORDS) < 0.36
    segments = rng.integers(0, 6, RECORDS, np.int32)
    found: dict[str, Work] = {
        "mix": lambda k: k.mix(numbers, hashing.INT),
        "hash_pieces, 13 bytes": lambda k: k.hash_pieces(text, offsets, hashing.TEXT),
        "same_pieces, 13 bytes": lambda k: k.same_pieces(text, offsets, rows, text, offsets),
        "hash_tuples of 2": lambda k: k.hash_tuples([numbers, numbers], RECORDS),
        "targets": lambda k: k.targets(numbers, owners),
        "order, 2 receivers": lambda k: k.order(targets, 2),
        "order, 8 receivers": lambda k: k.order(targets_of_8, 8),
        "renumber, 36 % of them": lambda k: k.renumber(chosen, segments, 5, 6),
    }
    for name, count in KEYS.items():
        table, known = table_of(count)
        hashes = known[rng.integers(0, count, RECORDS)]
        slots = rng.integers(0, count, RECORDS)
        sums, known_sums = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        newest = np.zeros(count, np.intp)
        found[f"add_up, {name}"] = lambda k, s=sums, n=known_sums, at=slots: k.add_up(s, n, at, at)
        found[f"newest, {name}"] = lambda k, at=slots, r=newest: k.newest(at, r)
        found[f"find, {name}"] = lambda k, t=table, n=known, h=hashes: k.find(t, n, h)

    def add(kernels: Kernels) -> object:
        table, known = np.full(4 * RECORDS, EMPTY, np.int32), np.zeros(RECORDS, np.uint64)
        return kernels.add(table, known, 0, numbers)

    return {**found, "add, all of them new": add}


def measured(work: Work, kernels: Kernels) -> float:
    """Nanoseconds a record."""
    began = time.perf_counter()
    for _ in range(CALLS):
        work(kernels)
    return (time.perf_counter() - began) / CALLS / RECORDS * 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args(arguments).rounds
    all_works = works()
    implementations = [choose_kernels(name) for name in reversed(IMPLEMENTATIONS)]
    rows = []
    for name, work in all_works.items():
        best = [float("inf")] * len(implementations)
        for _ in range(rounds):
            for place, choice in enumerate(implementations):
                best[place] = min(best[place], measured(work, choice.kernels))
        named = zip(map(str, implementations), best, strict=True)
        rows.append({"ns a record": name, **{name: f"{ns:.2f}" for name, ns in named}})
    print_table(rows)


if __name__ == "__main__":
    main()
