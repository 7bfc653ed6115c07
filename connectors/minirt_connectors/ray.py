"""A launcher: the actors of a Ray cluster are the hosts of a minirt job."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Literal

from minirt import ConfigurationError, HostCluster, Invitation, Reactive
from minirt.units import Duration, positive
from minirt_connectors.host_process import (
    Agent,
    QuickFailures,
    in_one_line,
    refuse_too_few,
    run_host,
)

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
        reactive: Reactive | None = None,
        compression: Literal["lz4"] | None = None,
    ) -> None:
        positive("RayCluster: slots", slots)
        positive("RayCluster: slots_each", slots_each)
        self._slots_each = slots_each
        self._actors = -(-slots // slots_each)
        ray = _connected()
        super().__init__(
            listen or f"{ray.util.get_node_ip_address()}:0",
            credentials,
            wait,
            min_slots,
            tls,
            reactive,
            compression,
        )

    def launch(self, invitation: Invitation) -> RayHosts:
        refuse_too_few(self, self._actors * self._slots_each, invitation)
        agent = Agent.invited(invitation, self._slots_each, self.credentials, super().launch)
        return RayHosts(self._actors, self._slots_each, agent)


class RayHosts:
    """Actors that each run an agent; a thread has those run again that have failed."""

    def __init__(self, actors: int, cpus: int, agent: Agent) -> None:
        self._ray = _connected()
        hosting = self._ray.remote(
            num_cpus=cpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )(_Host)
        self._actors = [hosting.remote() for _ in range(actors)]
        self._agent = agent
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
        self._agent.close()

    def _run(self) -> None:
        try:
            self._serve_again_and_again()
        except BaseException as error:
            self._failure = f"Ray runs no agents for it: {in_one_line(error)}"

    def _serve_again_and_again(self) -> None:
        failures, began_at = QuickFailures(), time.monotonic()
        given = (self._agent.command, self._agent.secret)
        serving = {actor.serve.remote(*given): actor for actor in self._actors}
        while serving:
            ended, _ = self._ray.wait([*serving], timeout=_PAUSE_S)
            for task in ended:
                actor = serving.pop(task)
                try:
                    self._ray.get(task)
                except Exception:
                    if failures.too_many(began_at) and not self._over:
                        raise
                if not self._over:
                    began_at = time.monotonic()
                    time.sleep(_PAUSE_S)
                    serving[actor.serve.remote(*given)] = actor


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
