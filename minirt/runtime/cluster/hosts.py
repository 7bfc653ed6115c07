"""The hosts of a job: templates that are up, here or elsewhere, and which of them runs which worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from minirt.protocol.ids import SubtaskId
from minirt.runtime.control.connection import MessageConnection
from minirt.runtime.control.messages import Fork, HostBeat, JobOver, KillGeneration, TakeGraph


@dataclass(slots=True, eq=False)
class Host:
    """A template and the connection to it. Without `slots` it takes any number of workers."""

    connection: MessageConnection
    name: str
    slots: int | None
    beats: bool
    """Whether it gives signs of life."""
    heard_at: float
    ready: bool = False
    """Whether it has the job loaded."""
    graph: bytes | None = None
    """The plan of the job that it was told last, if that is not the one of its package."""

    def tell(self, message: Fork | KillGeneration | TakeGraph | HostBeat | JobOver) -> None:
        """Its end is noticed where its connection is read."""
        with contextlib.suppress(OSError):
            self.connection.send(message)


class Hosts:
    """All templates that have come. `monotonic` is the clock of the coordinator.

    A host that was silent for `silence_s_max` gets no workers until it is heard again: it may be frozen.
    """

    def __init__(self, monotonic: Callable[[], float], silence_s_max: float) -> None:
        self._monotonic = monotonic
        self._silence_s_max = silence_s_max
        self._hosts: dict[MessageConnection, Host] = {}
        self._placed: dict[int, Host] = {}
        """Where the slots of the job were last."""

    def __iter__(self) -> Iterator[Host]:
        return iter(list(self._hosts.values()))

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, connection: MessageConnection, name: str, slots: int | None = None) -> Host:
        """A host that has come; it is not `ready` yet. One with slots gives signs of life."""
        beats = slots is not None
        host = Host(connection, name, slots, beats, self._monotonic())
        self._hosts[connection] = host
        return host

    def of(self, connection: MessageConnection) -> Host | None:
        return self._hosts.get(connection)

    def on_heard(self, host: Host) -> None:
        host.heard_at = self._monotonic()

    def silent_s(self, host: Host) -> float:
        """How long it has given no sign of life."""
        return self._monotonic() - host.heard_at if host.beats else 0.0

    def remove(self, host: Host) -> None:
        self._hosts.pop(host.connection, None)
        host.connection.close()

    def close(self, last_word: JobOver | None) -> None:
        """Without their connections templates end their workers, and themselves.

        Agents without a last word look for another program that runs the job, if they know of any.
        """
        for host in self:
            if last_word is not None:
                host.tell(last_word)
            self.remove(host)

    def usable_slots(self) -> int | None:
        """How many there are now; None for any number."""
        usable = [host.slots for host in self if self._usable(host)]
        return None if None in usable else sum(slots or 0 for slots in usable)

    def place(self, slot_of: Mapping[int, int], slots_min: int | None = None) -> dict[int, Host]:
        """A host for each worker; `slot_of` says which slot of the job a worker belongs to.

        Each slot of the job gets one of a host, spread evenly, and the one that it had before where that
        can be; with at least `slots_min`, they share what there is. Empty if there are too few.
        """
        usable = [host for host in self if self._usable(host)]
        slots = sorted(set(slot_of.values()))
        there = self.usable_slots() if usable else 0
        if there is not None and there < (len(slots) if slots_min is None else slots_min):
            return {}
        share = dict.fromkeys(usable, 0)
        for _ in slots:
            host = min(usable, key=lambda one: share[one] / one.slots if one.slots else 0.0)
            share[host] += 1
        chosen: dict[int, Host] = {}
        for slot in slots:
            before = self._placed.get(slot)
            if before is not None and share.get(before, 0):
                chosen[slot] = before
                share[before] -= 1
        without = [slot for slot in slots if slot not in chosen]
        left = [host for host in usable for _ in range(share[host])]
        chosen.update(zip(without, left, strict=True))
        self._placed = chosen
        return {worker: chosen[slot] for worker, slot in slot_of.items()}

    def _usable(self, host: Host) -> bool:
        return host.ready and self.silent_s(host) < self._silence_s_max


def slots_of(placement: Mapping[SubtaskId, int]) -> dict[int, int]:
    """The slot of each worker: it has one subtask of every operator, in one or several workers."""
    slots: dict[int, int] = {}
    for id, worker in placement.items():
        slots[worker] = min(slots.get(worker, id.index), id.index)
    return slots
