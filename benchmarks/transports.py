"""What it costs to move frames to another process of the host: `python -m benchmarks.transports`.

One process sends frames and another one takes them in: over the socket of a trunk, as trunks do it, and
through a ring in shared memory with an eventfd at each end. CPU time of both for each frame; no records are
made of them. It says what a transport in shared memory could save at most.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory

import numpy as np

from benchmarks.measure import print_rows
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.network.packets import PacketDecoder, Piece, cut, unsent

SLOTS = 4
"""How many frames a ring holds: two under way and two in the queue of the receiver, as a channel may."""
RECEIVE_BYTES = 256 * 1024

Mover = Callable[["Ends", int, int], None]
"""Sends, or takes in, so many frames of so many bytes."""


@dataclass(frozen=True)
class Ends:
    """What the two processes share."""

    sender: socket.socket
    receiver: socket.socket
    ring: SharedMemory
    filled: int
    """An eventfd that counts the slots that hold a frame."""
    free: int
    """Likewise those that are free."""


def send_packets(ends: Ends, frames: int, size: int) -> None:
    payload = memoryview(np.ones(size, np.uint8))
    for _ in range(frames):
        pieces: list[Piece] = []
        rest = cut(0, Kind.COLUMNS, payload, pieces)
        while rest is not None:
            rest = cut(0, Kind.COLUMNS, rest, pieces, begins=False)
        while pieces:
            pieces = unsent(pieces, ends.sender.sendmsg(pieces))


def take_packets(ends: Ends, frames: int, size: int) -> None:
    buffer, decoder = memoryview(bytearray(RECEIVE_BYTES)), PacketDecoder(1, size)
    while frames:
        count = ends.receiver.recv_into(buffer)
        frames -= len(decoder.feed(buffer[:count]))


def fill_ring(ends: Ends, frames: int, size: int) -> None:
    payload = np.ones(size, np.uint8)
    for number in range(frames):
        os.eventfd_read(ends.free)
        start = number % SLOTS * size
        ends.ring.buf[start : start + size] = payload.data
        os.eventfd_write(ends.filled, 1)


def copy_ring(ends: Ends, frames: int, size: int) -> None:
    """Each frame is copied out: it may be held for long, by a queue or by a checkpoint."""
    for number in range(frames):
        os.eventfd_read(ends.filled)
        start, room = number % SLOTS * size, np.empty(size, np.uint8)
        room.data[:] = ends.ring.buf[start : start + size]
        Frame(Kind.COLUMNS, room.data.toreadonly())
        os.eventfd_write(ends.free, 1)


def read_ring(ends: Ends, frames: int, size: int) -> None:
    """Each frame is read where it lies, and its slot is free once it was processed."""
    for number in range(frames):
        os.eventfd_read(ends.filled)
        start = number % SLOTS * size
        Frame(Kind.COLUMNS, ends.ring.buf[start : start + size].toreadonly())
        os.eventfd_write(ends.free, 1)


WAYS: dict[str, tuple[Mover, Mover]] = {
    "socket": (send_packets, take_packets),
    "ring, copied out": (fill_ring, copy_ring),
    "ring, read in place": (fill_ring, read_ring),
}


def measured(way: str, frames: int, size: int) -> tuple[float, float]:
    """CPU and wall seconds for each frame, of both processes together."""
    send, take = WAYS[way]
    ring = SharedMemory(create=True, size=SLOTS * size)
    ring.buf[:] = bytes(len(ring.buf))  # So that its pages are there.
    sender, receiver = socket.socketpair()
    flags = os.EFD_SEMAPHORE
    ends = Ends(sender, receiver, ring, os.eventfd(0, flags), os.eventfd(SLOTS, flags))
    try:
        cpu_s, began = _cpu_s(), time.perf_counter()
        child = os.fork()
        if not child:
            code = 1
            try:
                take(ends, frames, size)
                code = 0
            finally:
                os._exit(code)
        send(ends, frames, size)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{way}: the receiver failed")
        return (_cpu_s() - cpu_s) / frames, (time.perf_counter() - began) / frames
    finally:
        sender.close()
        receiver.close()
        os.close(ends.filled)
        os.close(ends.free)
        ring.close()
        ring.unlink()


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=4000, help="how many a run moves")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kib", type=int, nargs="+", default=[32, 256], help="sizes of frames")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args(arguments)
    rows = []
    for kib in options.kib:
        runs: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, results in runs.items():
                results.append(measured(way, options.frames, kib * 1024))
        for way, results in runs.items():
            cpu_s, wall_s = map(min, zip(*results, strict=True))
            row = {"frame_kib": kib, "way": way, "cpu_us_a_frame": round(cpu_s * 1e6, 1)}
            rows.append({**row, "us_a_frame": round(wall_s * 1e6, 1)})
    print_rows(rows, options.json)


if __name__ == "__main__":
    main()
