"""What the parts cost of which a large job has many: channels, barriers, connections of the coordinator."""

from __future__ import annotations

import socket
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from minirt.clock import SYSTEM_CLOCK
from minirt.modes import MODES
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.channels import InputChannel, InputGate, OutputChannel
from minirt.runtime.channels.frames import barrier_frame, barrier_of
from minirt.runtime.cluster.watch import Watch
from minirt.runtime.network.packets import PacketDecoder
from minirt.runtime.network.transit import Transit
from minirt.runtime.network.turns import Turns

_LOOKS = 100


class Costs:
    """CPU seconds of this process, by what they were for."""

    def __init__(self) -> None:
        self.cpu_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.cpu_s[what] += time.process_time() - began


def barrier_row(channels: int, mode: str) -> dict[str, Any]:
    """A row: CPU seconds of a barrier in one of so many channels, from the sender's queue to the mode."""
    outputs = [OutputChannel(1 << 20, 1 << 20) for _ in range(channels)]
    turns = Turns(outputs, lambda: None)
    decoder, transit = PacketDecoder(channels, 1 << 20), Transit()
    gate = InputGate([InputChannel(1 << 20) for _ in range(channels)])
    handler, costs = BarrierHandler(range(channels), MODES), Costs()
    with costs.of("barriers"):
        sent = barrier_frame(Barrier(1, mode, SYSTEM_CLOCK.monotonic()))
        for output in outputs:
            output.put(sent)
        while packets := turns.batch():
            now = SYSTEM_CLOCK.monotonic()
            for number, packed in decoder.feed(memoryview(b"".join(packets))):
                frame = transit.frame(packed, now)
                gate.put(number, frame)
                handler.on_arrived(number, barrier_of(frame), now)
        while (taken := gate.take()) is not None:
            handler.on_reached(taken[0], barrier_of(taken[1]), SYSTEM_CLOCK.monotonic())
    return {"channels": channels, "mode": mode, "barrier_s": costs.cpu_s["barriers"] / channels}


def channel_row(channels: int) -> dict[str, Any]:
    """A row: the memory of both ends of a channel whose queues are empty."""
    tracemalloc.start()
    ends = [(OutputChannel(1 << 20, 1 << 20), InputChannel(1 << 20)) for _ in range(channels)]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"channels": len(ends), "channel_bytes": held / channels}


def look_row(connections: int) -> dict[str, Any]:
    """A row: CPU seconds of a look at so many connections, of which one can be read."""
    costs = Costs()
    with ExitStack() as opened:
        pairs = [socket.socketpair() for _ in range(connections)]
        for pair in pairs:
            for end in pair:
                opened.enter_context(end)
        watch, watched = Watch(), [here for here, _ in pairs]
        opened.callback(watch.close)
        pairs[0][1].send(b"x")
        watch.readable(watched, 0)
        with costs.of("looks"):
            for _ in range(_LOOKS):
                watch.readable(watched, 0)
    return {"connections": connections, "look_s": costs.cpu_s["looks"] / _LOOKS}
