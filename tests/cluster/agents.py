"""Host agents as processes of a test, on this machine or in network namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import minirt as rt
from tests.runtime.processes import children, is_alive, send

_END_S_MAX = 80.0


class Agent:
    """`minirt host` in a process of its own; `prefix` is a command that runs another one."""

    def __init__(
        self,
        invitation: rt.Invitation,
        slots: int,
        *,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
        credentials: str | None = None,
    ) -> None:
        command = [sys.executable, "-m", "minirt", "host", "--coordinator", invitation.coordinator]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*prefix, *command, "--slots", str(slots), "--wait", "20s", *options],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "MINIRT_CREDENTIALS": credentials or invitation.credentials,
            },
            stdin=subprocess.DEVNULL,
            stderr=self._said,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        return children(self.pid)

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        send(self.pid, number)

    def wait(self, timeout: float = _END_S_MAX) -> int:
        """The exit status."""
        return self._process.wait(timeout)

    def said(self) -> str:
        """What it has written to standard error."""
        self._said.seek(0)
        return self._said.read()

    def kill(self) -> None:
        for pid in [*self.workers, self.pid]:
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)
        self._process.wait()
        self._said.close()


class Agents:
    """Those that a test has started for a job."""

    how = "the test starts agents"

    def __init__(self, invitation: rt.Invitation) -> None:
        self.invitation = invitation
        self.all: list[Agent] = []

    def add(self, slots: int, **options: object) -> Agent:
        self.all.append(Agent(self.invitation, slots, **options))  # type: ignore[arg-type]
        return self.all[-1]

    def failure(self) -> str | None:
        return None

    def close(self) -> None:
        """They end by themselves: a test looks."""


@dataclass(frozen=True)
class PlayedCluster(rt.HostCluster):
    """Its agents are started by the test, `slots` at once."""

    listen: str = "127.0.0.1:0"
    slots: tuple[int, ...] = ()
    started: tuple[Agents, ...] = ()

    def launch(self, invitation: rt.Invitation) -> Agents:
        agents = Agents(invitation)
        _started.append(agents)
        for slots in self.slots:
            agents.add(slots)
        return agents


_started: list[Agents] = []


@contextlib.contextmanager
def agents_of(job: rt.Job) -> Iterator[Agents]:
    """Of a job that was just started. Fails unless nothing is left of them when it is over."""
    agents = _started.pop()
    pids = set()
    try:
        yield agents
        pids = {pid for agent in agents.all for pid in [agent.pid, *agent.workers]}
        job.cancel()
        for agent in agents.all:
            agent.wait()
        left = [pid for pid in pids if is_alive(pid)]
        assert not left
    finally:
        job.cancel()
        for agent in agents.all:
            agent.kill()
