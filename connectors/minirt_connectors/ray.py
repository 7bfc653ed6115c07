"""A launcher: the actors of a Ray cluster are the hosts of a minirt job."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minirt import ConfigurationError, HostCluster, Invitation
from minirt.units import Duration, positive
from minirt_connectors.host_process import run_host

_FAILURES_MAX = 5
"""How often an agent may fail in a row, each time within `_QUICK_S`."""
_QUICK_S = 60.0
_PAUSE_S = 1.0
_END_S_MAX = 5.0
"""How long agents may take to notice that the job is over, before their actors are killed."""


class RayCluster(HostCluster):
    """The cluster that the program is connected to by `ray.init`: `slots` slots, in actors of `slots_each`.

    An actor takes as many of Ray's CPUs as it has slots, and Ray spreads actors over its nodes. It starts
    lost actors again. The coordinator listens at the address of the program's node unless `listen` says
    otherwise. minirt and the modules of the job must be installed on all nodes.

    The credentials travel with the tasks, which Ray encrypts only with `RAY_USE_TLS=1`; with `credentials`,
    a file that all nodes can read, they do not. Raises ConfigurationError for options that cannot work.
    """

    def __init__(
        self,
        *,
        slots: int,
        slots_each: int = 1,
        listen: str | None = None,
        credentials: str | os.PathLike[str] | None = None,
        wait: Duration = "2min",
        min_slots: int | None = None,
        tls: bool = True,
    ) -> None:
        positive("RayCluster: slots", slots)
        positive("RayCluster: slots_each", slots_each)
        self._slots_each = slots_each
        self._actors = -(-slots // slots_each)
        ray = _connected()
        super().__init__(
            listen or f"{ray.util.get_node_ip_address()}:0", credentials, wait, min_slots, tls
        )

    def launch(self, invitation: Invitation) -> RayHosts:
        written = None if self.credentials is None else super().launch(invitation)
        secret = {} if written is not None else {"MINIRT_CREDENTIALS": invitation.credentials}
        command = ["-m", "minirt", "host", "--coordinator", invitation.coordinator]
        command += ["--slots", str(self._slots_each)]
        if self.credentials is not None:
            # A shared file system may show the new file late.
            command += ["--credentials", os.path.abspath(self.credentials), "--wait", "30s"]
        close = (lambda: None) if written is None else written.close
        return RayHosts(self._actors, self._slots_each, command, secret, close)


class RayHosts:
    """Actors that each run an agent; a thread has those run again that have failed."""

    def __init__(
        self,
        actors: int,
        cpus: int,
        command: Sequence[str],
        secret: Mapping[str, str],
        close: Callable[[], None],
    ) -> None:
        self._ray = _connected()
        hosting = self._ray.remote(
            num_cpus=cpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )(_Host)
        self._actors = [hosting.remote() for _ in range(actors)]
        self._serve = (list(command), dict(secret))
        self._close = close
        self._over = False
        self._failure: str | None = None
        self.how = (
            f"Ray runs {actors} actors for it: `ray list actors` says which of them are pending"
        )
        self._thread = threading.Thread(target=self._run, name="minirt-ray", daemon=True)
        self._thread.start()

    def failure(self) -> str | None:
        return self._failure

    def close(self) -> None:
        self._over = True
        self._thread.join(_END_S_MAX)
        for actor in self._actors:
            with contextlib.suppress(Exception):  # The program may have left the cluster.
                self._ray.kill(actor)
        self._close()

    def _run(self) -> None:
        try:
            self._serve_again_and_again()
        except BaseException as error:
            self._failure = f"Ray runs no agents for it: {_in_one_line(error)}"

    def _serve_again_and_again(self) -> None:
        failures, began = 0, time.monotonic()
        serving = {actor.serve.remote(*self._serve): actor for actor in self._actors}
        while serving:
            ended, _ = self._ray.wait([*serving], timeout=_PAUSE_S)
            for task in ended:
                actor = serving.pop(task)
                try:
                    self._ray.get(task)
                except Exception:
                    failures = failures + 1 if time.monotonic() - began < _QUICK_S else 1
                    if not self._over and failures >= _FAILURES_MAX:
                        raise
                if not self._over:
                    began = time.monotonic()
                    time.sleep(_PAUSE_S)
                    serving[actor.serve.remote(*self._serve)] = actor


class _Host:
    """The actor."""

    def serve(self, command: list[str], secret: dict[str, str]) -> None:
        run_host(command, secret)


def _connected() -> Any:
    """Ray, if the program is connected to a cluster. Raises ConfigurationError."""
    try:
        import ray
    except ImportError as error:
        raise ConfigurationError("RayCluster needs Ray: pip install 'minirt[ray]'") from error
    if not ray.is_initialized():
        raise ConfigurationError("RayCluster: connect to a cluster first, by ray.init()")
    return ray


def _in_one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "exit code" in line), (lines or [repr(error)])[0])
