"""What a sink remembers of its system is compared with the ledger, here of a system that goes back."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest

from minirt.io import Sink, Staging
from minirt.testing.contracts import SinkMemoryContract
from minirt.testing.sinks import FakeSystem, FakeSystemSink
from minirt.testing.sinks.trial import Fault, FaultyStaging


class TestLedgerSink(SinkMemoryContract):
    @pytest.fixture(autouse=True)
    def _system(self) -> None:
        self.system = FakeSystem()
        self.objects: dict[str, bytes] = {}

    def new_sink(self, accept: Sequence[str]) -> Sink:
        sink = FakeSystemSink(self.system)
        sink.accept = accept
        return sink

    def staging(self) -> Staging:
        return FaultyStaging(self.objects, Fault(None, "", lambda text: None))

    def keep(self) -> None:
        self.kept = deepcopy(vars(self.system))

    def go_back(self) -> None:
        vars(self.system).update(deepcopy(self.kept))

    def visible(self) -> list[Any]:
        return list(self.system.records)
