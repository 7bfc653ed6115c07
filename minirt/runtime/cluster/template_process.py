"""The launcher of jobs on one machine: a template process, whose coordinator starts it by itself."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from minirt.errors import ConfigurationError, WorkerLostError
from minirt.filesystems import Protocols
from minirt.runtime.cluster.launching import LaunchFailed
from minirt.runtime.control.host_hello import HostHello, HostWelcome
from minirt.runtime.control.package import JobPackage
from minirt.runtime.network.sockets import Address, Network
from minirt.runtime.worker.template import PYTHON, TemplateStart

_END_S_MAX = 2.0
"""How long it may take to end its workers in an orderly way."""


@dataclass(frozen=True, slots=True)
class LocalLaunch:
    """Everything runs on this machine."""

    wait_s: float | None = None
    slots_min: int | None = None
    follows_slots: bool = False

    def network(self, token: bytes, folder: str, transport: str) -> tuple[Network, int]:
        return Network(token, folder, None if transport == "unix" else "127.0.0.1"), 0

    def start(
        self, package: JobPackage, network: Network, address: Address, slots: int
    ) -> TemplateProcess:
        protocols = Protocols.of_this_process()
        return TemplateProcess(
            TemplateStart(address, network, sys.path, protocols, pickle.dumps(package))
        )


LOCAL_LAUNCH = LocalLaunch()


class TemplateProcess:
    """A `Launcher`: starts the template, and another one when it is lost.

    It and the workers that it forks are a process group of their own: signals from a terminal do not
    reach them, and whoever is left of them can be killed together. Without its connection it ends its
    workers, and itself.
    """

    advice = ""

    def __init__(self, start: TemplateStart) -> None:
        self._start = pickle.dumps(start)
        self._process = self._spawn()

    def failure(self) -> LaunchFailed | None:
        """Asked as long as nobody has heard that it came up.

        Unless it was killed, it has printed why it ended to our standard error.
        """
        code = self._process.poll()
        if code is None:
            return None
        how = f"the template process {how_it_ended(code)}"
        if code >= 0:
            return LaunchFailed(WorkerLostError(f"{how} before it was up"), fatal=True)
        self._restart()
        return LaunchFailed(WorkerLostError(how), fatal=False)

    def on_lost(self) -> str:
        try:
            how = how_it_ended(self._process.wait(_END_S_MAX))
        except subprocess.TimeoutExpired:
            how = "has hung up"
        self._restart()
        return f"the template process {how}"

    def welcome(self, said: dict[str, Any]) -> tuple[HostHello, HostWelcome]:
        raise ConfigurationError("the job runs on one machine; give it cluster=HostCluster(...)")

    def prove(self, welcome: HostWelcome) -> None:
        """One machine sees one storage."""

    def close(self, *, orderly: bool) -> None:
        """End it together with all its workers."""
        if orderly:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S_MAX)
        self._kill()

    def _restart(self) -> None:
        self._kill()
        self._process = self._spawn()

    def _kill(self) -> None:
        if self._process.returncode is None:  # Else its id may belong to somebody else by now.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*PYTHON, "-c", "from minirt.runtime.worker.template import main; main()"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(self._start)
        return process


def how_it_ended(code: int) -> str:
    """What became of a process, by its exit code as `subprocess` gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
