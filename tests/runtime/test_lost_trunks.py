"""A connection between two workers breaks in the middle of a frame, and both of them live on."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.runtime.network.trunks import TrunkSender
from minirt.runtime.worker import wiring

pytestmark = pytest.mark.processes

COUNT = 300
LETTERS = "x" * 100_000
"""A record of that size takes two packets."""


class Breaks(rt.Process):
    """Once, its worker's trunk takes the first bytes of a packet, and then no more."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterator[tuple[int, str]]:
        if record == COUNT // 2 and not Path(self.mark).exists():
            Path(self.mark).touch()
            wiring._ALONE_S_MAX = 0.5
            [sender] = [one for one in gc.get_objects() if isinstance(one, TrunkSender)]
            sender.sock = BreaksInside(sender.sock)
        yield record, LETTERS


class BreaksInside:
    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendmsg(self, pieces: list[Any]) -> int:
        sent: int = self._sock.send(b"".join(map(bytes, pieces))[:70_000])
        self._sock.shutdown(socket.SHUT_RDWR)
        return sent


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_a_job_restarts_when_two_workers_cannot_reach_each_other(tmp_path: Path, mode: str) -> None:
    class Hears(rt.JobObserver):
        errors: list[str] = []

        def on_restart(self, error: Exception, delay_s: float) -> None:
            self.errors.append(str(error))

    Hears.errors = []
    env, sink = rt.Environment("broken"), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(COUNT), uid="numbers")
    large = numbers.process(Breaks(str(tmp_path / "mark")), uid="breaks").rebalance()
    large.map(lambda record: (record[0], len(record[1])), uid="short").sink(sink, uid="out")
    result = env.execute(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="50ms", mode=mode),
        restart=rt.Restart.fixed_delay(1, 0),
        options=rt.Options(heartbeat_timeout="60s"),
        observer=Hears(),
    )
    assert result.restarts == 1
    assert Hears.errors == ["a connection to another worker is closed"]
    assert sorted(sink.rows) == [(number, len(LETTERS)) for number in range(COUNT)]
