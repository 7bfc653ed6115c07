"""Whoever does not know the token gets nowhere, and the job does not care."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    ConfigurationError,
    Environment,
    Job,
    Options,
    Process,
    ProcessContext,
    SequenceSource,
    WorkerLostError,
)
from minirt.runtime.control.connection import MessageConnection, connect_to
from minirt.runtime.control.entrance import Entrance
from minirt.runtime.control.handshake import REPLY_BYTES
from minirt.runtime.control.messages import LifelineOpened
from minirt.runtime.network.sockets import TOKEN_BYTES, Address, Network, connected
from tests.runtime.jobs import numbers_of
from tests.runtime.processes import needs_proc, send, templates, wait_until, workers

pytestmark = [pytest.mark.processes, needs_proc]

COUNT = 1500


class OpensSlowly(Process):
    """Leaves strangers time to knock while workers wait for each other."""

    def open(self) -> None:
        time.sleep(0.7)

    def process(self, record: int, ctx: ProcessContext) -> list[int]:
        return [record]


def start(folder: Path, transport: str, sink: CollectSink) -> Job:
    env = Environment()
    numbers = numbers_of(env, COUNT, "numbers", per_second=1000)
    numbers.rebalance().process(OpensSlowly()).sink(sink)
    return env.start(
        checkpointing=Checkpointing(str(folder / "checkpoints"), interval="50ms"),
        options=Options(transport=transport),
    )


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert not list(tmp_path.glob("minirt-*"))


def listening(pid: int) -> list[tuple[str, int]]:
    """Address and port of the TCP sockets on which a process accepts connections."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    own = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:
                address, port = fields[1].rsplit(":", 1)
                found.append((address, int(port, 16)))
    return found


def visit(address: Address) -> socket.socket:
    """A connection on which nothing is said."""
    visitor = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    visitor.connect(address)
    return visitor


def test_strangers_at_the_sockets_of_coordinator_and_workers_do_not_disturb_the_job(temporary):
    sink = CollectSink()
    job = start(temporary, "unix", sink)
    (folder,) = temporary.glob("minirt-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    with pytest.raises(WorkerLostError, match="does not know the job's token"):
        connect_to(str(folder / "coordinator"), Network(b"wrong", ""))
    receiver = folder / "w1-1"
    wait_until(receiver.exists, "the worker of the second operator listens")
    with visit(str(receiver)) as liar:
        liar.sendall(bytes(TOKEN_BYTES + 100))
        assert is_shown_out(liar)
    assert job.wait(60).restarts == 0
    assert sorted(sink.rows) == list(range(COUNT))


def is_shown_out(visitor: socket.socket) -> bool:
    """Whether the other side hangs up, with no more words than its part of a handshake."""
    heard = b""
    try:
        while part := visitor.recv(4096):
            heard += part
    except ConnectionResetError:
        pass
    return len(heard) <= REPLY_BYTES


def test_over_tcp_only_this_host_can_knock_and_in_vain(temporary):
    sink = CollectSink()
    before = listening(os.getpid())  # Spark may have sockets in this process, too.
    job = start(temporary, "tcp", sink)
    wait_until(lambda: any(listening(pid) for pid in workers()), "a worker listens")
    (door,) = [door for door in listening(os.getpid()) if door not in before]
    doors = [door, *(other for pid in [*templates(), *workers()] for other in listening(pid))]
    assert len(doors) >= 2
    assert {address for address, _ in doors} == {"0100007F"}
    with pytest.raises(WorkerLostError, match="does not know the job's token"):
        connect_to(("127.0.0.1", door[1]), Network(b"wrong", ""))
    assert job.wait(60).restarts == 0
    assert sorted(sink.rows) == list(range(COUNT))


def test_workers_that_start_while_a_stranger_stays_silent_are_let_in(temporary):
    sink = CollectSink()
    job = start(temporary, "unix", sink)
    (folder,) = temporary.glob("minirt-*")
    with visit(str(folder / "coordinator")):
        wait_until(lambda: len(sink.rows) > 100, "first output")
        send(workers()[0], signal.SIGKILL)
        assert job.wait(60).restarts == 1
    assert sorted(sink.rows) == list(range(COUNT))


def test_a_temporary_folder_that_sockets_cannot_be_in_is_refused(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 25)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    env = Environment()
    env.source(SequenceSource(3), uid="numbers").sink(CollectSink(), uid="out")
    with pytest.raises(ConfigurationError, match=r"too long.*TMPDIR.*tcp"):
        env.execute("too-long")
    assert list(long.iterdir()) == []


def test_where_no_thread_can_be_had_whoever_comes_is_turned_away_and_the_next_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    admitted: list[object] = []
    entrance = Entrance(Network(bytes(TOKEN_BYTES), str(tmp_path)), admitted.append)
    with monkeypatch.context() as patch, connected(entrance.address, 10) as caller:
        patch.setattr("minirt.runtime.control.entrance.start_thread", none)
        assert not entrance.accept()
        assert caller.recv(1) == b""
    monkeypatch.setattr("minirt.runtime.control.entrance.welcome", lambda *_: True)
    with connected(entrance.address, 10):
        assert entrance.accept()
        wait_until(lambda: len(admitted) == 1, "the next one is let in", 10)
    entrance.close()
    admitted[0].close()  # type: ignore[attr-defined]


def test_who_has_come_by_the_end_is_examined_and_who_says_nothing_is_not_waited_for(
    tmp_path: Path,
) -> None:
    network, admitted = Network(bytes(TOKEN_BYTES), str(tmp_path)), list[Any]()
    entrance = Entrance(network, admitted.append)
    with ThreadPoolExecutor() as callers, connected(entrance.address, 10):
        called = callers.submit(connect_to, entrance.address, network)
        wait_until(lambda: backlog(entrance) == 2, "both have come")
        began = time.monotonic()
        entrance.finish(0.5)
        assert time.monotonic() - began < 4
        assert len(admitted) == 1
        called.result().close()
        entrance.close()
    admitted[0].close()


def backlog(entrance: Entrance) -> int:
    """How many connections the system has taken that nobody has accepted."""
    rows = Path("/proc/net/unix").read_text().splitlines()
    return sum(row.split()[5] == "02" and row.endswith(f" {entrance.address}") for row in rows)


def test_who_is_recognised_after_the_end_is_turned_away(tmp_path, monkeypatch):
    ended, admitted = threading.Event(), []
    monkeypatch.setattr(
        "minirt.runtime.control.entrance.welcome", lambda *_: ended.wait(60) or True
    )
    entrance = Entrance(Network(bytes(TOKEN_BYTES), str(tmp_path)), admitted.append)
    with connected(entrance.address, 10) as caller:
        entrance.accept()
        entrance.close()
        ended.set()
        assert caller.recv(1) == b""
    assert admitted == []


def test_who_is_admitted_as_the_job_ends_is_let_go_with_all_others(monkeypatch):
    """The loop has not heard of it by then."""
    right, (ours, theirs) = Entrance.close, socket.socketpair()

    def close(entrance: Entrance) -> None:
        MessageConnection(theirs).send(LifelineOpened())
        entrance._admit(ours)
        right(entrance)

    monkeypatch.setattr(Entrance, "close", close)
    numbers = CollectSink()
    env = Environment()
    env.source(SequenceSource(3)).sink(numbers)
    env.execute()
    assert sorted(numbers.rows) == [0, 1, 2]
    assert ours.fileno() < 0
    theirs.close()
