"""What streams offer to those who try things: print the records, or have some of them as a list."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any, Generic, Unpack

from minirt.api import launch
from minirt.api.draft import Draft, Input, Port, Settings
from minirt.api.keywords import OperatorOptions, operator_settings
from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, JobFailedError
from minirt.generics import T_co
from minirt.io.base import Sink, SinkContext, SinkWriter
from minirt.io.simple_sinks import DiscardSink, PrintSink
from minirt.operators.sink import SinkSpec
from minirt.protocol.restarts import Restart
from minirt.run_settings import RunSettings
from minirt.units import positive


class Trying(Generic[T_co]):
    """The part of a stream with which one tries things."""

    __slots__ = ()

    _draft: Draft
    _ports: tuple[Port, ...]

    @property
    def _label(self) -> str:
        raise NotImplementedError

    @property
    def _input(self) -> Input:
        raise NotImplementedError

    def print(
        self,
        prefix: str = "",
        limit: int | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        """The end of the stream: its records are printed, as by `.sink(PrintSink(prefix, limit))`."""
        settings = operator_settings(options)
        self._draft.add(SinkSpec(PrintSink(prefix, limit)), settings, (self._input,))

    def collect(self) -> list[T_co]:
        """Run what leads to this stream, and return all of its records.

        It runs at once, in this thread, without checkpoints and without the sinks of the job. For tries
        and tests: all records must fit into memory. Raises ConfigurationError if a source never ends, and
        what `Environment.execute` raises. A stream that leads nowhere else is no part of the job.
        """
        return _run(self._draft, self._ports, f"collect on {self._label}", None)

    def preview(self, n: int = 10) -> list[T_co]:
        """Run what leads to this stream until it has given `n` records, and return these.

        As `collect`, but it stops early, so sources may be endless. A stream that gives fewer records
        and does not end keeps it running: Ctrl-C interrupts it.
        """
        return _run(self._draft, self._ports, f"preview of {self._label}", positive("n", n))


def _run(draft: Draft, ports: tuple[Port, ...], label: str, limit: int | None) -> list[Any]:
    launch.refuse_to_run()
    part, ports = draft.try_out(ports)
    sink = _TrialSink(limit)
    settings = Settings(uid="minirt-trial", name="trial", parallelism=1)
    part.add(SinkSpec(sink), settings, (Input(label, ports),))
    for number, port in enumerate(part.loose_ends()):  # The stream is a side output of it.
        rest = Settings(uid=f"minirt-rest-{number}", name="rest")
        part.add(SinkSpec(DiscardSink()), rest, (Input(label, (port,)),))
    graph = part.graph("trial")
    if limit is None:
        for node in graph.operators.values():
            source = node.spec.reads_from
            if source is not None and not source.bounded:
                raise ConfigurationError(
                    f"{label}: source {node.label} never ends; use preview(n), which stops after n records"
                )
    from minirt.runtime.coordinator.observer import JobObserver
    from minirt.runtime.program.execute import execute_job

    # What only a job in processes, or one with checkpoints, can do has no effect here.
    options = replace(
        draft.options, metrics_port=None, control=None, on_signal="cancel", trace=False
    )
    try:
        # An observer of its own: a trial that has enough ends its job by an error, which is no failure
        # that the status line of a notebook may show.
        run = RunSettings(restart=Restart.none(), options=options, observer=JobObserver())
        execute_job(graph, run, "inline")
    except JobFailedError:
        if not sink.full:
            raise
    return sink.rows


class _Enough(Exception):
    """The records that were asked for are there: ends the trial."""


_sinks: weakref.WeakValueDictionary[int, _TrialSink] = weakref.WeakValueDictionary()


def _same(number: int) -> _TrialSink:
    return _sinks[number]


class _TrialSink(Sink):
    """Collects records in this process. Its copies are itself: a trial never leaves the thread."""

    def __init__(self, limit: int | None) -> None:
        self.rows: list[Any] = []
        self.limit = limit
        _sinks[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (id(self),)

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self.rows) >= self.limit

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _TrialWriter(self)


class _TrialWriter(SinkWriter):
    def __init__(self, sink: _TrialSink) -> None:
        self._sink = sink

    def write(self, batch: Batch) -> None:
        sink = self._sink
        left = len(batch) if sink.limit is None else min(len(batch), sink.limit - len(sink.rows))
        sink.rows.extend(batch.slice(0, left).rows().records)
        if sink.full:
            raise _Enough
