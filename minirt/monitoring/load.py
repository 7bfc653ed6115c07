"""The load of a job over time, for its storage: how busy and how backpressured each operator was.

Entries are taken every `Limits.load_s` seconds and hold what advice needs: also how the job was set up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from minirt.graph.execution import ExecutionGraph
from minirt.monitoring.events import FIGURES_BYTES_MAX
from minirt.monitoring.figures import OperatorFigures
from minirt.monitoring.monitor import JobMonitor
from minirt.protocol import plain
from minirt.protocol.job_events import JobStatus
from minirt.runtime.coordinator.observer import JobObserver, JobProgress

LOAD_ENTRIES_MAX = 360
"""How many entries a storage remembers: an hour at one every ten seconds."""


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """An operator chain in one stretch of time; times in milliseconds of a second, records per second."""

    operator: str
    """The uid of its first operator."""
    name: str
    parallelism: int
    inputs: tuple[str, ...]
    """The chains that it reads from, by the uids of their first operators."""
    busy_ms: float
    """Averages over its subtasks, as are the next two."""
    soft_ms: float
    hard_ms: float
    busiest_ms: float
    """Of its busiest subtask."""
    busiest_share: float
    """The part of all its records that its busiest subtask took in."""
    records_in: float
    bytes_in: float
    queued_bytes: int
    """What waited in all its input queues."""
    straight: tuple[str, ...] = ()
    """Those of `inputs` whose records no barrier overtakes."""

    @property
    def backpressured_ms(self) -> float:
        return self.soft_ms + self.hard_ms


@dataclass(frozen=True, slots=True)
class JobSetup:
    """The settings that matter for its checkpoints. Durations in seconds."""

    mode: str
    interval_s: float
    timeout_s: float
    debloat_s: float | None


@dataclass(frozen=True, slots=True)
class LoadEntry:
    """The load of a job at the date `at`, in seconds since 1970."""

    at: float
    generation: int
    setup: JobSetup
    operators: tuple[OperatorLoad, ...]

    def to_plain(self) -> dict[str, Any]:
        value: dict[str, Any] = plain.to_plain(self)
        return value

    @staticmethod
    def from_plain(value: object) -> LoadEntry:
        """What `to_plain` gave. Raises ValueError for anything else."""
        return plain.from_plain(LoadEntry, value)


class LoadEntries(JobObserver):
    """Has an entry recorded now and then.

    A job of so many operators that an entry would be too large has none.
    """

    def __init__(
        self,
        monitor: JobMonitor,
        graph: ExecutionGraph,
        setup: JobSetup,
        record: Callable[[dict[str, Any]], object],
        monotonic: Callable[[], float],
        every_s: float,
    ) -> None:
        self._monitor = monitor
        self._setup = setup
        self.take_shape(graph)
        self._record = record
        self._monotonic = monotonic
        self._every_s = every_s
        self._due_at = 0.0

    def take_shape(self, graph: ExecutionGraph) -> None:
        """The job is planned like this from now on: other operators may be chained.

        May be called from another thread, between two generations.
        """
        heads = {vertex.id: vertex.operators[0].uid for vertex in graph.vertices}
        inputs: dict[str, list[str]] = {}
        straight: dict[str, list[str]] = {}
        for link in graph.links:
            for known in (inputs,) if link.capturable else (inputs, straight):
                known.setdefault(heads[link.target], []).append(heads[link.source])
        self._inputs, self._straight = inputs, straight

    def on_status(self, status: JobStatus, generation: int) -> None:
        self._due_at = 0.0  # A generation begins: nothing of it is known yet.

    def on_progress(self, progress: JobProgress) -> None:
        now = self._monotonic()
        if now < self._due_at:
            return
        figures = self._monitor.figures()
        operators = figures.operators()
        if not operators or any(one.rates is None for one in operators):
            return
        self._due_at = now + self._every_s
        loads = tuple(self._load(operator) for operator in operators)
        entry = LoadEntry(figures.at, figures.generation, self._setup, loads).to_plain()
        if len(msgpack.packb(entry, unicode_errors="backslashreplace")) <= FIGURES_BYTES_MAX:
            self._record(entry)

    def _load(self, operator: OperatorFigures) -> OperatorLoad:
        rates = operator.rates
        assert rates is not None
        known = [one.rates for one in operator.subtasks if one.rates is not None]
        busiest = max(known, key=lambda one: one.busy_ms)
        taken = rates.records_in
        return OperatorLoad(
            operator.operator,
            operator.name,
            len(operator.subtasks),
            tuple(self._inputs.get(operator.operator, ())),
            rates.busy_ms,
            rates.soft_backpressure_ms,
            rates.hard_backpressure_ms,
            busiest.busy_ms,
            busiest.records_in / taken if taken else 1 / len(operator.subtasks),
            taken,
            rates.bytes_in,
            sum(one.totals.queued_in_bytes for one in operator.subtasks),
            tuple(self._straight.get(operator.operator, ())),
        )
