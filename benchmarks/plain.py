"""The work of `keyed-sum-rows` by hand: four processes, msgpack over sockets, no guarantees at all.

What plain Python reaches on a machine, to set a runtime's figure beside.
"""

from __future__ import annotations

import multiprocessing as mp
import socket
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgpack

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
    results: Any,
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
    results.put(sum(total[1] for total in totals.values()))


def keyed_sum_seconds(
    records: int,
    prepare: Callable[[int], Record],
    key_of: Callable[[Record], Any],
    combine: Callable[[Record, Record], Record],
) -> float:
    """How long it takes, from the start of the processes to the last result."""
    fork = mp.get_context("fork")
    pairs = [[socket.socketpair() for _ in range(_PARALLELISM)] for _ in range(_PARALLELISM)]
    results = fork.Queue()
    share = records // _PARALLELISM
    workers: list[Any] = []
    for sender, row in enumerate(pairs):
        numbers = range(sender * share, (sender + 1) * share)
        ends = [pair[0] for pair in row]
        workers.append(fork.Process(target=_send, args=(numbers, ends, prepare, key_of)))
    for receiver in range(_PARALLELISM):
        ends = [row[receiver][1] for row in pairs]
        workers.append(fork.Process(target=_reduce, args=(ends, key_of, combine, results)))
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for row in pairs:
        for one, other in row:
            one.close()
            other.close()
    total = sum(results.get() for _ in range(_PARALLELISM))
    seconds = time.monotonic() - began
    for worker in workers:
        worker.join()
    assert total == share * _PARALLELISM
    return seconds
