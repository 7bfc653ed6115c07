"""The sink that stands for the outside world is held to the contract of all sinks."""

from __future__ import annotations

from typing import Any

import pytest

from minirt.io import Sink
from minirt.testing import TransactionalSink
from minirt.testing.contracts import SinkContract


class TestTransactionalSink(SinkContract):
    shows_again = False

    @pytest.fixture(autouse=True)
    def _outside_world(self) -> None:
        self.sink = TransactionalSink()

    def new_sink(self) -> Sink:
        return self.sink

    def visible(self, sink: Sink) -> list[Any]:
        return self.sink.rows

    def pending(self) -> list[str]:
        return sorted(self.sink.pending)
