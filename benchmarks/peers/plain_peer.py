"""The work of `keyed-sum-rows` by hand: four processes, msgpack over sockets, no guarantees at all.

What plain Python reaches on a machine, to set a runtime's figure beside.
"""

from __future__ import annotations

import multiprocessing as mp
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgpack

from benchmarks.workload import SPREAD, Tally, Work, announce, last_total, report

_LENGTH = struct.Struct("<I")
_BATCH = 4096
_PARALLELISM = 2

Record = tuple[int, int]


class _Owners(dict[Any, int]):
    """Which receiver a key belongs to."""

    def __missing__(self, key: Any) -> int:
        owner = self[key] = zlib.crc32(msgpack.packb(key)) % _PARALLELISM
        return owner


def _send(
    numbers: range,
    sockets: list[socket.socket],
    prepare: Callable[[int], Record],
    key_of: Callable[[Record], Any],
) -> None:
    owners = _Owners()
    outgoing: list[list[Record]] = [[] for _ in sockets]
    for start in range(numbers.start, numbers.stop, _BATCH):
        batch = range(start, min(numbers.stop, start + _BATCH))
        for record in [prepare(number) for number in batch]:
            outgoing[owners[key_of(record)]].append(record)
        for sock, records in zip(sockets, outgoing, strict=True):
            packed = msgpack.packb(records)
            sock.sendall(_LENGTH.pack(len(packed)) + packed)
            records.clear()
    for sock in sockets:
        sock.shutdown(
            socket.SHUT_WR
        )  # Other processes have inherited it: closing would not end it.


def _reduce(
    sockets: list[socket.socket],
    key_of: Callable[[Record], Any],
    combine: Callable[[Record, Record], Record],
    last: int,
) -> None:
    totals: dict[Any, Record] = {}
    streams = [sock.makefile("rb", buffering=1 << 20) for sock in sockets]
    while streams:
        for stream in list(streams):
            head = stream.read(_LENGTH.size)
            if not head:
                streams.remove(stream)
                continue
            for record in msgpack.unpackb(stream.read(*_LENGTH.unpack(head)), use_list=False):
                key = key_of(record)
                total = totals.get(key)
                totals[key] = record if total is None else combine(total, record)
    done = [key for key, count in totals.values() if count >= last]
    report(Tally(len(done), sum(done)), time.monotonic())


def main() -> None:
    work = Work.parse(sys.argv[1:])
    fork = mp.get_context("fork")
    pairs = [[socket.socketpair() for _ in range(_PARALLELISM)] for _ in range(_PARALLELISM)]
    share = work.records // _PARALLELISM
    workers: list[Any] = []
    announce()
    for sender, row in enumerate(pairs):
        numbers = range(sender * share, (sender + 1) * share)
        ends = [pair[0] for pair in row]
        functions = (lambda number: (number * SPREAD % work.keys, 1), lambda pair: pair[0])
        workers.append(fork.Process(target=_send, args=(numbers, ends, *functions)))
    for receiver in range(_PARALLELISM):
        ends = [row[receiver][1] for row in pairs]
        functions = (lambda pair: pair[0], lambda total, pair: (total[0], total[1] + pair[1]))
        workers.append(fork.Process(target=_reduce, args=(ends, *functions, last_total(work))))
    for worker in workers:
        worker.start()
    for row in pairs:
        for one, other in row:
            one.close()
            other.close()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
