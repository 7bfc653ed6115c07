"""Takes in the hosts that come to a job, gives them workers to fork, and notices which of them are gone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from minirt.config import Options
from minirt.errors import ConfigurationError, MinirtError, WorkerLostError
from minirt.monitoring.logs import logger_of
from minirt.protocol.job_events import GenerationFailed, JobEvent, WorkerFailed
from minirt.protocol.slots import AwaitSlots, SlotsAwaited, SlotsCame, SlotsChanged
from minirt.runtime.cluster.hosts import Host, Hosts
from minirt.runtime.cluster.launching import Launch, Launcher
from minirt.runtime.control.connection import MessageConnection
from minirt.runtime.control.host_hello import HostWelcome, refusal
from minirt.runtime.control.messages import (
    Fork,
    HostBeat,
    JobOver,
    KillGeneration,
    TakeGraph,
    TemplateReady,
)
from minirt.threads import start_thread

logger = logger_of("coordinator")

_ADVISE_AFTER_S = 3.0
"""Agents that come by themselves need no advice to anybody."""
_SILENCE_S_MAX = 3.0
"""A host that is silent for longer gets no new workers, whatever the heartbeat timeout is."""
_THIS_MACHINE = "this machine"

_THREADS = (
    "loading the job started threads (%s), so workers cannot be forked: each one loads the job by itself, "
    "and starts and restarts take longer; start threads in open() of a process function instead"
)


class Reception:
    """`slots` is the slot of each worker. All is called by the thread that polls.

    `post` takes events for the coordinator; with `leave` another thread leaves something for this one.
    """

    def __init__(
        self,
        options: Options,
        slots: Mapping[int, int],
        launch: Launch,
        launcher: Launcher,
        post: Callable[[JobEvent], None],
        leave: Callable[[Callable[[], None]], None],
    ) -> None:
        self._timeout_s = options.heartbeat_timeout_s
        self.take_shape(slots, None)
        self._launch = launch
        self._launcher = launcher
        self._post = post
        self._leave = leave
        silence_s_max = min(_SILENCE_S_MAX, self._timeout_s / 2)
        self.hosts = Hosts(time.monotonic, silence_s_max)
        self._welcomes: dict[Host, HostWelcome] = {}
        """What those were told that have not yet loaded the job."""
        self._generation = 0
        self._host_of: dict[int, Host] = {}
        self._waiting_since: float | None = None
        """Set while a generation has no hosts yet."""
        self._placed_any = False
        self._sharing = False
        """Whether the generation has fewer slots than it needs."""
        self._awaited: AwaitSlots | None = None
        """Set while a job whose parallelism follows its slots has not yet got any."""
        self._told_slots: int | None = None
        """How many slots were posted last."""
        self._advised = False
        self._complaints: dict[str, None] = {}
        """Why hosts were refused."""

    # What the coordinator orders.

    def take_shape(self, slots: Mapping[int, int], graph: bytes | None) -> None:
        """The next generations have these workers, each in a slot, and this pickled graph."""
        self._slots = slots
        self._needed = len(set(slots.values()))
        self._graph = graph

    def await_slots(self, awaited: AwaitSlots) -> None:
        """Post how many there are, once they are enough or the time is over."""
        self._awaited = awaited
        self._waiting_since = time.monotonic()
        self._count(awaited.enough)

    def deploy(self, generation: int) -> None:
        """Have the workers of a generation forked, as soon as there are hosts for them.

        A job that follows its slots has waited for them already.
        """
        self._generation = generation
        self._host_of = {}
        self._sharing = False
        self._waiting_since = time.monotonic()
        self._place(self._launch.slots_min if self._launch.follows_slots else None)

    def fork_again(self, worker: int, life: int) -> None:
        """Have a worker forked that is gone, where it was."""
        host = self._host_of.get(worker)
        if host is not None:
            host.tell(Fork(self._generation, worker, life))

    def call_off(self) -> None:
        """A generation that still waits for hosts will not start."""
        self._waiting_since = self._awaited = None

    def kill(self, generation: int) -> None:
        """Have all processes of a generation killed."""
        self.call_off()
        for host in self.hosts:
            host.tell(KillGeneration(generation))

    def close(self, last_word: JobOver | None) -> None:
        """End all templates, and with them their workers; agents are told the `last_word`."""
        orderly = len(self.hosts) > 0
        self.hosts.close(last_word)
        self._launcher.close(orderly=orderly)

    def name_of(self, worker: int) -> str:
        """Where a worker runs, for messages; empty on this machine."""
        host = self._host_of.get(worker)
        return "" if host is None or host.name == _THIS_MACHINE else f" on {host.name}"

    # What the loop calls.

    def starts(self) -> bool:
        """False if no template can come; what became of it is posted."""
        if len(self.hosts):
            return True
        failed = self._launcher.failure()
        if failed is None:
            return True
        if failed.fatal:
            self._post(GenerationFailed(failed.error, fatal=True))
        else:
            self._post(WorkerFailed(self._generation, failed.error))
        return False

    def look_around(self) -> None:
        """Who is silent, and whether those who are to come take too long."""
        self._tell_slots()
        for host in set(self._host_of.values()):
            silent_s = self.hosts.silent_s(host)
            if silent_s > self._timeout_s:
                self._lose(host, f"{host.name} has been silent for {silent_s:.1f} s")
        wait_s = self._launch.wait_s
        if self._waiting_since is None or wait_s is None:
            return
        waited_s = time.monotonic() - self._waiting_since
        if self._awaited is None:
            if waited_s >= wait_s:
                self._place(self._launch.slots_min)
        elif waited_s >= min(wait_s, self._awaited.patience_s):
            self._count(self._awaited.least)
        if self._waiting_since is None:
            return
        if waited_s >= wait_s and not self._placed_any:
            self._give_up()
        elif waited_s > _ADVISE_AFTER_S and not self._advised:
            self._advised = True
            logger.warning(
                "the job waits for hosts, which counts as no failure: %s; %s",
                self._there(self._awaited),
                self._launcher.advice,
            )

    # Messages.

    def on_hello(self, sender: MessageConnection, said: dict[str, Any]) -> None:
        """A host has come and says what it offers."""
        try:
            hello, welcome = self._launcher.welcome(said)
        except ConfigurationError as error:
            who = f"host {said.get('name')} at {said.get('address')}"
            self._complain(f"{who} is refused: {error}")
            with contextlib.suppress(OSError):
                sender.send(refusal(str(error)))
            sender.close()
            return
        host = self.hosts.add(sender, str(hello), hello.slots)
        self._welcomes[host] = welcome
        with contextlib.suppress(OSError):
            sender.send(welcome)

    def on_ready(self, sender: MessageConnection, ready: TemplateReady) -> None:
        """A template has loaded the job."""
        if ready.threads:
            logger.warning(_THREADS, ", ".join(ready.threads))
        host = self.hosts.of(sender)
        if host is None:
            self._admit(self.hosts.add(sender, _THIS_MACHINE))
            return
        welcome = self._welcomes.pop(host)
        start_thread(
            "minirt-probe",
            partial(self._prove, host, welcome),
            lambda error: self._leave(partial(self.on_error, sender, error)),
        )

    def on_beat(self, sender: MessageConnection) -> None:
        host = self.hosts.of(sender)
        if host is not None:
            self.hosts.on_heard(host)
            host.tell(HostBeat())
            self._on_usable()

    def on_error(self, sender: MessageConnection, error: BaseException) -> None:
        """A template could not load the job. While others work, only that host is refused."""
        host = self.hosts.of(sender)
        if host is None or host.slots is None or not self._placed_any:
            failed = error if isinstance(error, Exception) else MinirtError(str(error))
            self._post(GenerationFailed(failed, fatal=True))
        if host is not None:
            self._complain(f"{host.name} is refused: {error}")
            with contextlib.suppress(OSError):
                sender.send(refusal(str(error)))
            self._forget(host)

    def on_closed(self, connection: MessageConnection) -> bool:
        """Whether it was that of a template. Its workers die with it: nobody could tell how they are."""
        host = self.hosts.of(connection)
        if host is None:
            return False
        how = self._launcher.on_lost()
        if host.slots is None:
            self.hosts.remove(host)
            self._post(WorkerFailed(self._generation, WorkerLostError(how)))
        else:
            self._forget(host)
            self._lose(host, f"{host.name} {how}")
        return True

    def _prove(self, host: Host, welcome: HostWelcome) -> None:
        """In a thread of its own."""
        self._launcher.prove(welcome)
        self._leave(partial(self._admit, host))

    def _admit(self, host: Host) -> None:
        host.ready = True
        if host.slots is not None:
            logger.info("%s has come with %d slots", host.name, host.slots)
        self._on_usable()

    def _on_usable(self) -> None:
        """A host can take workers, perhaps since this moment."""
        self._tell_slots()
        if self._awaited is not None:
            self._count(self._awaited.enough)
            return
        self._place()
        if self._sharing and self._has_enough:
            self._sharing = False
            self._post(SlotsCame(self._generation))

    @property
    def _has_enough(self) -> bool:
        """Whether each slot of the job can have one of a host."""
        there = self.hosts.usable_slots()
        return there is None or there >= self._needed

    def _tell_slots(self) -> None:
        slots = self.hosts.usable_slots()
        if self._launch.follows_slots and slots is not None and slots != self._told_slots:
            self._told_slots = slots
            self._post(SlotsChanged(slots))

    def _count(self, enough: int) -> None:
        slots = self.hosts.usable_slots()
        if slots is not None and slots >= enough:
            self._waiting_since = self._awaited = None
            self._post(SlotsAwaited(slots))

    def _place(self, slots_min: int | None = None) -> None:
        if self._waiting_since is None:
            return
        placed = self.hosts.place(self._slots, slots_min)
        if not placed:
            return
        self._host_of, self._waiting_since = placed, None
        self._placed_any, self._advised = True, False
        self._sharing = not self._has_enough
        for host in set(placed.values()):
            if self._graph is not None and host.graph is not self._graph:
                host.graph = self._graph
                host.tell(TakeGraph(self._graph))
        for worker in sorted(placed):
            placed[worker].tell(Fork(self._generation, worker))

    def _give_up(self) -> None:
        """The job cannot start. Once it has run, it waits instead: that a machine is gone has counted."""
        awaited, self._waiting_since, self._awaited = self._awaited, None, None
        why = f"{self._there(awaited)} within {self._launch.wait_s:g} s"
        because = "".join(f"; {complaint}" for complaint in self._complaints)
        error = WorkerLostError(f"{why}{because}; {self._launcher.advice}")
        self._post(GenerationFailed(error, fatal=True))

    def _there(self, awaited: AwaitSlots | None) -> str:
        """How many slots there are; `awaited` is what a job that follows its slots waits for."""
        needed = self._needed if awaited is None else awaited.least
        slots = "1 slot" if needed == 1 else f"{needed} slots"
        at_least = "" if awaited is None or awaited.least == awaited.enough else "at least "
        return f"it needs {at_least}{slots}, and hosts with {self.hosts.usable_slots()} have come"

    def _lose(self, host: Host, how: str) -> None:
        hosted = [worker for worker, at in self._host_of.items() if at is host]
        self._host_of = {worker: at for worker, at in self._host_of.items() if at is not host}
        if not hosted:
            logger.warning("%s; it had no workers", how)
            return
        numbers = ", ".join(map(str, sorted(hosted)))
        workers = "worker" if len(hosted) == 1 else "workers"
        lost = WorkerLostError(f"{workers} {numbers}: {how}")
        self._post(WorkerFailed(self._generation, lost))

    def _forget(self, host: Host) -> None:
        self.hosts.remove(host)
        self._welcomes.pop(host, None)

    def _complain(self, complaint: str) -> None:
        if complaint not in self._complaints:
            self._complaints[complaint] = None
            logger.warning("%s", complaint)
