"""Hosts far from each other, on one machine: network namespaces whose packets a process holds back.

Each host is a namespace with one device, a TUN, whose other end that process has: it passes each packet on
when it would arrive on a link of such a delay, jitter and bandwidth. Needs Linux, iproute2 and the right to
make namespaces. `python -m benchmarks.distance` is the process, and not for people.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_DEVICE = "tun"
_MTU = 65_000
_QUEUE_S_MAX = 0.2
"""How long a packet may wait for its turn on a narrow link; then it is dropped, as routers do."""
_QUEUE_BYTES_MIN = 4 * _MTU
_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Link:
    """Between two hosts, one way. Without `bytes_per_s` it is as wide as the machine allows."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None


@dataclass
class Direction:
    """Packets on their way to a host. None overtakes another: jitter is that of a queue."""

    link: Link
    random: Random
    packets: deque[tuple[float, bytes]] = field(default_factory=deque)
    queued_bytes: int = 0
    sent_at: float = 0.0
    """When the last packet has left the link's narrowest place."""
    due_at: float = 0.0

    def take(self, packet: bytes, now: float) -> None:
        """Have a packet arrive later, or drop it where too many wait."""
        link = self.link
        self.sent_at = max(self.sent_at, now)
        if link.bytes_per_s is not None:
            room = max(_QUEUE_BYTES_MIN, link.bytes_per_s * _QUEUE_S_MAX)
            if (self.sent_at - now) * link.bytes_per_s + len(packet) > room:
                return
            self.sent_at += len(packet) / link.bytes_per_s
        arrives_at = self.sent_at + link.delay_s + self.random.uniform(0.0, link.jitter_s)
        self.due_at = max(self.due_at, arrives_at)
        self.packets.append((self.due_at, packet))

    def arrived(self, now: float) -> list[bytes]:
        packets = []
        while self.packets and self.packets[0][0] <= now:
            packets.append(self.packets.popleft()[1])
        return packets


class DistantHosts:
    """So many hosts; the first one is where this process runs. Raises OSError if that is not allowed."""

    def __init__(self, count: int, link: Link) -> None:
        id = os.getpid() % 10_000
        self._net = f"10.{150 + id % 50}.{id // 50 % 250}"
        self.names = ["", *(f"far{id}-{n}" for n in range(1, count))]
        self._device = f"far{id}"
        with contextlib.ExitStack() as undo:
            for name in self.names[1:]:
                ip("netns", "add", name)
                undo.callback(ip, "netns", "delete", name)
            process = self._start(link)
            undo.callback(
                process.communicate, timeout=_TIMEOUT_S
            )  # It ends with its standard input.
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise OSError("TUN devices are not allowed")
            for number in range(count):
                self._bring_up(number)
            self._undo = undo.pop_all()

    def _start(self, link: Link) -> subprocess.Popen[bytes]:
        options = ("--delay", link.delay_s, "--jitter", link.jitter_s)
        bandwidth = () if link.bytes_per_s is None else ("--bytes-per-s", link.bytes_per_s)
        command = [sys.executable, "-m", __name__, self._device, *self.names]
        return subprocess.Popen(
            [*command, *map(str, (*options, *bandwidth))],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _bring_up(self, number: int) -> None:
        within = self._within(number)
        address = f"{self.address(number)}/24"
        ip(*within, "address", "add", address, "dev", self._device)
        ip(*within, "link", "set", self._device, "mtu", str(_MTU), "up")
        if within:
            ip(*within, "link", "set", "lo", "up")

    def _within(self, number: int) -> tuple[str, ...]:
        return ("-n", self.names[number]) if number else ()

    def address(self, number: int) -> str:
        return f"{self._net}.{number + 1}"

    def prefix(self, number: int) -> tuple[str, ...]:
        """What runs a command on a host."""
        return ("ip", "netns", "exec", self.names[number]) if number else ()

    def received_bytes(self, number: int) -> int:
        """What has come to a host from the others."""
        told = json.loads(ip(*self._within(number), "-j", "-s", "link", "show", self._device))
        return int(told[0]["stats64"]["rx"]["bytes"])

    def close(self) -> None:
        self._undo.close()


def ip(*arguments: str) -> str:
    """What it says. Raises OSError if the machine has no such command, or refuses."""
    called = subprocess.run(["ip", *arguments], capture_output=True, timeout=_TIMEOUT_S, text=True)
    if called.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {called.stderr.strip()}")
    return called.stdout


def open_device(device: str, namespace: str) -> int:
    """A TUN within a namespace, which keeps existing while it is open; "" is that of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY) if namespace else own
    _enter(libc, there)
    try:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        return descriptor
    finally:
        _enter(libc, own)
        for opened in {own, there}:
            os.close(opened)


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network namespace cannot be entered")


def carry(devices: Sequence[int], link: Link) -> None:
    """Pass packets on between devices until standard input ends."""
    directions = [Direction(link, Random(number)) for number in range(len(devices))]
    wake = select.poll()
    for descriptor in (0, *devices):
        wake.register(descriptor, select.POLLIN)
    while True:
        now = time.monotonic()
        for descriptor, direction in zip(devices, directions, strict=True):
            for packet in direction.arrived(now):
                _write(descriptor, packet)
        due_s = min((one.packets[0][0] for one in directions if one.packets), default=None)
        wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
        for descriptor, _ in wake.poll(None if wait_s is None else wait_s * 1000):
            if descriptor == 0:
                return
            for packet in _read(descriptor):
                receiver = packet[19] - 1 if packet[0] >> 4 == 4 else -1
                if 0 <= receiver < len(directions):
                    directions[receiver].take(packet, time.monotonic())


def _read(descriptor: int) -> list[bytes]:
    packets = []
    while len(packets) < 100:
        try:
            packets.append(os.read(descriptor, _MTU + 100))
        except BlockingIOError:
            break
    return packets


def _write(descriptor: int, packet: bytes) -> None:
    try:
        os.write(descriptor, packet)
    except OSError:
        pass  # The host is not up yet, or takes no more: the packet is lost.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("namespaces", nargs="+")
    parser.add_argument("--delay", type=float, required=True, help="seconds, one way")
    parser.add_argument("--jitter", type=float, required=True, help="seconds")
    parser.add_argument("--bytes-per-s", type=float)
    given = parser.parse_args()
    devices = [open_device(given.device, name) for name in given.namespaces]
    print("ready", flush=True)
    carry(devices, Link(given.delay, given.jitter, given.bytes_per_s))


if __name__ == "__main__":
    main()
