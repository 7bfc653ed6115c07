"""Buffers that leave on demand, between real processes: `Options(flush="on_demand")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.config import Options
from minirt.data.batch import Batch
from minirt.errors import ConfigurationError
from minirt.io.base import SinkContext, SinkWriter
from tests.runtime.jobs import Numbers
from tests.runtime.processes import wait_until


class Noted(rt.Sink):
    """Writes down what arrives, so that others see it while the job runs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(self.path)


class _Writer(SinkWriter):
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, batch: Batch) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{record}\n" for record in batch.rows().records)


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_records_arrive_one_by_one_though_no_buffer_is_ever_full_or_due(
    placement: Any, tmp_path: Path
) -> None:
    """Two shuffles. A buffer that waits for its timeout would keep its records until the job ends."""
    path = tmp_path / "arrived"
    env = rt.Environment(parallelism=2)
    (
        env.source(Numbers(None, per_second=20), uid="numbers")
        .rebalance()
        .map(lambda number: number, uid="same")
        .key_by(lambda number: number % 4)
        .reduce(lambda _, number: number, uid="last")
        .sink(Noted(path), uid="out")
    )
    job = env.start(options=rt.Options(buffer_timeout="1h", flush="on_demand", placement=placement))
    try:
        wait_until(
            lambda: path.exists() and len(path.read_text().split()) >= 8, "records arrive", 60
        )
    finally:
        job.cancel()
        job.wait()


def test_an_unknown_way_to_flush_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="flush"):
        Options(flush="at_once")  # type: ignore[arg-type]
