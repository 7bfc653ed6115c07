"""A function that takes its time for a record holds a checkpoint up once, not at each of its steps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    Environment,
    JobObserver,
    Prepared,
    SequenceSource,
    Sink,
    SinkContext,
    SinkWriter,
)
from tests.runtime.signals import Signals

pytestmark = pytest.mark.processes


class SlowlyDurable(Sink):
    """Its output becomes durable only while the function before it is busy with a record."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(self._signals)

    def commit(self, handles: Sequence[Any]) -> None: ...


class _Writer(SinkWriter):
    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def write(self, batch: Any) -> None: ...

    def prepare(self, checkpoint_id: int) -> Prepared:
        self._signals.give("prepared")
        return Prepared(finish=lambda: self._signals.wait("within a record"))


class Completed(JobObserver):
    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self._signals.give(entry["status"])


def test_a_stored_snapshot_is_acknowledged_while_a_record_is_in_work(tmp_path):
    signals = Signals(tmp_path)

    def busy_until_completed(number: int) -> int:
        if signals.given("prepared"):
            signals.give("within a record")
            signals.wait("completed")
        else:
            time.sleep(0.001)
        return number

    env = Environment()
    numbers = env.source(SequenceSource.endless())
    numbers.map(busy_until_completed).sink(SlowlyDurable(signals))
    job = env.start(
        checkpointing=Checkpointing(tmp_path / "checkpoints", interval="50ms"),
        observer=Completed(signals),
    )
    try:
        signals.wait("completed")
    finally:
        job.cancel()
        job.wait(20)
