"""What a worker tells its coordinator of its snapshots: all that are ready, in one message."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from minirt.clock import SYSTEM_CLOCK
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined, WorkerFailed
from minirt.protocol.lines import LocalCut
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.part_paths import file_of
from minirt.runtime.control.connection import UnsendableError
from minirt.runtime.control.messages import Together
from minirt.runtime.worker.uploader import Uploader
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.runtime.processes import wait_until
from tests.runtime.test_unheard_errors import upload_of


class Gate:
    """A SnapshotWriter that stores a snapshot once it was let in."""

    def __init__(self) -> None:
        self.begun: Queue[int] = Queue()
        self._let = {checkpoint_id: threading.Event() for checkpoint_id in (1, 2, 3)}

    def write_snapshot(self, checkpoint_id: int, *rest: Any) -> None:
        self.begun.put(checkpoint_id)
        assert self._let[checkpoint_id].wait(10)

    def let(self, *checkpoint_ids: int) -> None:
        for checkpoint_id in checkpoint_ids:
            self._let[checkpoint_id].set()


class Coordinator:
    """Hears of snapshots; `refused` are checkpoints whose handles no message can carry."""

    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        self.heard: Queue[Any] = Queue()
        self._told = 0
        self.told_at_wakes: Queue[int] = Queue()
        """How many messages had come when the loop of the worker was woken."""
        self._refused = refused

    def tell(self, message: Any) -> None:
        events = message.events if isinstance(message, Together) else (message,)
        for event in events:
            if getattr(event, "checkpoint_id", None) in self._refused:
                raise UnsendableError("a lock")
        self._told += 1
        self.heard.put(message)

    def wake(self) -> None:
        self.told_at_wakes.put(self._told)

    def next(self) -> Any:
        return self.heard.get(timeout=10)


def uploader_of(coordinator: Coordinator, gate: Gate) -> tuple[Uploader, list[Any], list[Any]]:
    """It stores the first of three snapshots; the others wait."""
    results: list[Any] = []
    ends: list[Any] = []
    package: Any = SimpleNamespace(storage=gate, clock=SYSTEM_CLOCK)
    uploader = Uploader(
        package, 10, results.append, coordinator.wake, coordinator.tell, ends.append
    )
    for checkpoint_id in (1, 2, 3):
        uploader.put(upload_of(checkpoint_id, [{"file": checkpoint_id}]))
    assert gate.begun.get(timeout=10) == 1
    return uploader, results, ends


def test_snapshots_that_are_ready_together_are_acknowledged_in_one_message() -> None:
    coordinator, gate = Coordinator(), Gate()
    uploader, results, ends = uploader_of(coordinator, gate)
    gate.let(1, 2, 3)
    message = coordinator.next()
    assert isinstance(message, Together)
    assert [event.checkpoint_id for event in message.events] == [1, 2, 3]  # type: ignore[union-attr]
    assert list(message.events) == results
    uploader.tell_results()
    assert (coordinator.heard.empty(), ends) == (True, [])


def test_what_waits_of_one_checkpoint_is_stored_together(tmp_path: Path) -> None:
    let, begun = threading.Event(), threading.Event()

    class Slow(ObjectStore):
        def write(self, path: str, data: Any) -> None:
            begun.set()
            assert let.wait(10)
            super().write(path, data)

    storage = CheckpointStorage(Slow(str(tmp_path)), inline_bytes_max=0)
    coordinator, results = Coordinator(), list[Any]()
    package: Any = SimpleNamespace(storage=storage, clock=SYSTEM_CLOCK)
    uploader = Uploader(
        package, 10, results.append, lambda: None, coordinator.tell, lambda error: None
    )
    places = [(1, 0), (1, 1), (1, 2), (2, 0)]
    for checkpoint_id, index in places:
        upload = replace(upload_of(checkpoint_id, []), subtask=SubtaskId(0, index))
        uploader.put(upload)
        assert begun.wait(10)
    let.set()
    told: list[Any] = []
    while len(told) < len(places):
        message = coordinator.next()
        told += message.events if isinstance(message, Together) else [message]
    assert [(one.checkpoint_id, one.subtask.index) for one in told] == places
    files = [file_of(one.snapshot.path) for one in told]
    assert files[1] == files[2]
    assert len({*files}) == 3
    for one in told:
        key = ManifestKey(one.checkpoint_id, 1)
        assert storage.read_snapshot(one.snapshot, key) == {"state": b"much"}


def test_a_turn_of_the_loop_tells_what_is_ready_while_the_next_snapshot_hangs() -> None:
    coordinator, gate = Coordinator(), Gate()
    uploader, _, _ = uploader_of(coordinator, gate)
    gate.let(1)
    assert gate.begun.get(timeout=10) == 2
    assert coordinator.heard.empty()
    uploader.tell_results()
    assert coordinator.next().checkpoint_id == 1
    gate.let(2, 3)
    assert [event.checkpoint_id for event in coordinator.next().events] == [2, 3]


class SlowToHear(Coordinator):
    """The first message is under way until it is let in."""

    def __init__(self) -> None:
        super().__init__()
        self.telling, self.let = threading.Event(), threading.Event()

    def tell(self, message: Any) -> None:
        if not self.telling.is_set():
            self.telling.set()
            assert self.let.wait(10)
        super().tell(message)


def test_two_threads_that_tell_of_snapshots_keep_the_order() -> None:
    """Output of sinks that came behind that of a later checkpoint would count as committed."""
    coordinator, gate = SlowToHear(), Gate()
    uploader, results, _ = uploader_of(coordinator, gate)
    gate.let(1)
    assert gate.begun.get(timeout=10) == 2
    loop = threading.Thread(target=uploader.tell_results, daemon=True)
    loop.start()
    assert coordinator.telling.wait(10)
    gate.let(2, 3)
    wait_until(lambda: len(results) == 3, "all snapshots")
    time.sleep(0.1)  # For the thread of the uploader to tell of them, if nobody stops it.
    coordinator.let.set()
    assert coordinator.next().checkpoint_id == 1
    assert [event.checkpoint_id for event in coordinator.next().events] == [2, 3]
    loop.join(10)


def test_a_checkpoint_that_was_given_up_is_told_while_the_next_snapshot_hangs() -> None:
    coordinator, gate = Coordinator(), Gate()
    uploader, _, _ = uploader_of(coordinator, gate)
    uploader.give_up(2)
    gate.let(1)
    told = coordinator.next().events
    assert type(told[-1]) is SnapshotDeclined
    assert told[-1].checkpoint_id == 2
    gate.let(3)
    assert coordinator.next().checkpoint_id == 3


@pytest.mark.parametrize("refused", [(1,), (2,), (1, 2, 3)])
def test_handles_that_cannot_be_sent_fail_their_subtask_and_no_other(
    refused: tuple[int, ...],
) -> None:
    coordinator, gate = Coordinator(refused), Gate()
    _, _, ends = uploader_of(coordinator, gate)
    gate.let(1, 2, 3)
    told = [coordinator.next() for _ in range(3)]
    assert [type(one) for one in told] == [
        WorkerFailed if checkpoint_id in refused else SnapshotAcknowledged
        for checkpoint_id in (1, 2, 3)
    ]
    failed = [one for one in told if isinstance(one, WorkerFailed)]
    assert all("must be plain data: a lock" in str(one.error) for one in failed)
    assert ends == []


def test_the_loop_is_woken_while_acknowledgements_wait_for_it() -> None:
    coordinator, gate = Coordinator(), Gate()
    uploader_of(coordinator, gate)
    gate.let(1, 2, 3)
    coordinator.next()
    told = [coordinator.told_at_wakes.get(timeout=10) for _ in range(2)]
    assert (told, coordinator.told_at_wakes.empty()) == ([0, 0], True)


def test_the_loop_hears_of_a_snapshot_that_was_declined_once_the_coordinator_has() -> None:
    coordinator, gate = Coordinator(), Gate()
    uploader, _, _ = uploader_of(coordinator, gate)
    uploader.give_up(2)
    gate.let(1)
    assert [coordinator.told_at_wakes.get(timeout=10) for _ in range(2)] == [0, 1]
    gate.let(2, 3)


def test_the_loop_hears_of_a_local_snapshot_as_the_next_one_may_be_due() -> None:
    coordinator, gate = Coordinator(), Gate()
    uploader, results, _ = uploader_of(coordinator, gate)
    gate.let(1, 2, 3)
    wait_until(lambda: len(results) == 3, "all snapshots")
    coordinator.next()
    woken = [coordinator.told_at_wakes.get(timeout=10) for _ in range(2)]
    uploader.put(replace(upload_of(3, []), local=LocalCut(1)))
    assert (woken, coordinator.told_at_wakes.get(timeout=10)) == ([0, 0], 2)
