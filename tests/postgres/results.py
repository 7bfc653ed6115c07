"""What every sink does to the table `results`, and a server that restarts meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minirt.io.base import Sink, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract
from minirt.testing.sinks import SinkTrial
from tests.postgres.server import Postgres


class ResultsContract(SinkContract):
    def never_taken(self) -> list[Any]:
        return [{"id": "seven", "name": "x"}, {"id": 2**63, "name": "x"}]

    @pytest.fixture(autouse=True)
    def _place(self, server: Postgres, table: str, tmp_path: Path) -> None:
        self.server = server
        self.store = ObjectStore(str(tmp_path / "staged"))

    @abstractmethod
    def sink_to(self, server: Postgres) -> Any: ...

    def new_sink(self) -> Sink:
        sink: Sink = self.sink_to(self.server)
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        rows = self.server.rows("SELECT id, name FROM results ORDER BY ctid")
        return [{"id": id, "name": name} for id, name in rows]

    def pending(self) -> list[str]:
        return list(self.store.list())

    def staging(self) -> Staging:
        return self.store


class ResultsTrial(SinkTrial):
    def __init__(self, server: Postgres, sink_to: Callable[[Postgres], Sink]) -> None:
        self.server = server
        self._sink_to = sink_to

    def begin(self) -> None:
        self.server.run("TRUNCATE results", "DROP TABLE IF EXISTS minirt_commits")

    def sink(self) -> Sink:
        return self._sink_to(self.server)

    def visible(self) -> Sequence[int]:
        return [id for (id,) in self.server.rows("SELECT id FROM results")]


@contextmanager
def restarting(
    server: Postgres, how: signal.Signals, every_s: float, storage: Path
) -> Iterator[None]:
    """Twice, while the block runs a job: once it has completed a checkpoint there, and again."""
    over = threading.Event()

    def restart_twice() -> None:
        while not (over.is_set() or any(storage.glob("manifests/*"))):
            time.sleep(0.02)
        server.restart(how)
        time.sleep(every_s)
        server.restart(how)

    thread = threading.Thread(target=restart_twice)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
