"""Who renews the lease of a job, when it stops doing so, and what it does once the job is another's."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from minirt.errors import MinirtError, StorageError, SupersededError
from minirt.protocol.job_events import GenerationFailed, JobEvent, JobStatus
from minirt.protocol.lease import Lease, LeaseTimes
from minirt.runtime.coordinator.lease_holder import LeaseHolder
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import RUN_VARIABLE, LeaseReader
from minirt.storage.store import ObjectStore
from tests.runtime.processes import wait_until

TIMES = LeaseTimes(interval_s=0.01, timeout_s=5.0)


class Coordinator:
    """What a holder sees of one."""

    def __init__(
        self, folder: Path, times: LeaseTimes = TIMES, store: ObjectStore | None = None
    ) -> None:
        self.storage = CheckpointStorage(store or ObjectStore(str(folder)), 1000)
        self.still_s = 0.0
        self.events: queue.SimpleQueue[JobEvent] = queue.SimpleQueue()
        self.holder = LeaseHolder("job", self.storage, times, lambda: self.still_s, self.events.put)

    @property
    def lease(self) -> Lease | None:
        return LeaseReader(self.storage.store).read()[1]

    def renews(self) -> bool:
        """Whether it has renewed its lease since it was asked."""
        before, deadline = self.lease, time.monotonic() + 0.5
        while self.lease == before and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.lease != before


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path)
    yield made
    made.holder.close()


def test_it_begins_with_the_first_claim_and_names_the_newest(coordinator: Coordinator) -> None:
    assert not coordinator.renews()
    assert coordinator.storage.claim_generation() == 1
    assert coordinator.renews()
    assert coordinator.storage.claim_generation() == 2
    wait_until(lambda: coordinator.lease is not None and coordinator.lease.generation == 2, "it")
    assert coordinator.events.empty()


def test_a_coordinator_that_stands_still_gives_no_sign_of_life(coordinator: Coordinator) -> None:
    coordinator.storage.claim_generation()
    assert coordinator.renews()
    coordinator.still_s = TIMES.timeout_s + 0.1
    coordinator.renews()  # What was on its way.
    assert not coordinator.renews()
    coordinator.still_s = 0.0
    assert coordinator.renews()


def end_after(coordinator: Coordinator, status: JobStatus, error: Exception | None) -> None:
    coordinator.holder.on_end(status, error)
    coordinator.holder.close()


def test_it_says_how_the_job_has_ended(coordinator: Coordinator) -> None:
    coordinator.storage.claim_generation()
    end_after(coordinator, JobStatus.FAILED, MinirtError("no more attempts"))
    lease = coordinator.lease
    assert lease is not None
    assert (lease.ended, lease.cause) == ("failed", "no more attempts")


def test_without_an_end_it_just_falls_silent(coordinator: Coordinator) -> None:
    coordinator.storage.claim_generation()
    assert coordinator.renews()
    coordinator.holder.close()
    assert coordinator.lease is not None
    assert coordinator.lease.ended is None
    assert not coordinator.renews()


def test_a_job_that_claims_nothing_has_no_lease(coordinator: Coordinator) -> None:
    end_after(coordinator, JobStatus.FAILED, MinirtError("refused"))
    assert coordinator.lease is None


def claimed_by_another(coordinator: Coordinator) -> None:
    CheckpointStorage(coordinator.storage.store, 1000).claim_generation()


def test_a_job_that_another_has_taken_over_ends_and_leaves_the_lease_alone(
    coordinator: Coordinator,
) -> None:
    coordinator.storage.claim_generation()
    assert coordinator.renews()
    claimed_by_another(coordinator)
    event = coordinator.events.get(timeout=30)
    assert isinstance(event, GenerationFailed)
    assert isinstance(event.error, SupersededError)
    assert str(event.error).endswith(f": process {os.getpid()} of host {socket.gethostname()}")
    assert event.fatal
    assert not coordinator.renews()
    end_after(coordinator, JobStatus.FAILED, event.error)
    assert coordinator.lease is not None
    assert coordinator.lease.ended is None
    assert coordinator.events.empty()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Coordinator]:
    """Its holder does not look by itself for a minute."""
    made = Coordinator(tmp_path, LeaseTimes(interval_s=60.0, timeout_s=120.0))
    made.storage.claim_generation()
    yield made
    made.holder.close()


def test_whether_the_job_is_anothers_is_looked_up_for_who_must_know(slow: Coordinator) -> None:
    slow.holder.check(surely=True)
    claimed_by_another(slow)
    slow.holder.check(surely=False)  # What was known a moment ago will do.
    with pytest.raises(SupersededError, match=f": process {os.getpid()} of host "):
        slow.holder.check(surely=True)


def test_a_look_that_is_overdue_is_made_up_for(
    slow: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.holder.check(surely=True)
    claimed_by_another(slow)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 121)  # As in a program that was frozen.
    with pytest.raises(SupersededError):
        slow.holder.check(surely=False)


def test_where_nobody_can_look_nobody_is_said_to_have_taken_over(
    slow: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claimed_by_another(slow)

    def fail(*_: object) -> bool:
        raise StorageError("no way", "there")

    monkeypatch.setattr(slow.storage, "is_superseded", fail)
    slow.holder.check(surely=True)
    assert "nobody knows whether another program runs the job: no way" in caplog.text


@pytest.mark.parametrize("status", [JobStatus.CANCELLED, JobStatus.FINISHED])
def test_a_zombie_does_not_say_that_the_job_is_over(tmp_path: Path, status: JobStatus) -> None:
    storage = CheckpointStorage(ObjectStore(str(tmp_path)), 1000)
    slow = LeaseTimes(interval_s=60.0, timeout_s=120.0)
    ends: Callable[[JobEvent], None] = lambda event: None  # noqa: E731
    holder = LeaseHolder("job", storage, slow, lambda: 0.0, ends)
    storage.claim_generation()
    CheckpointStorage(storage.store, 1000).claim_generation()
    holder.on_end(status, None)
    holder.close()
    assert LeaseReader(storage.store).read() == (None, None)


class FreezingStore(ObjectStore):
    """Its program freezes before the access that `accesses_left` says, of those that a renewal makes."""

    accesses_left: int | None = None

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.freezes, self.goes_on = threading.Event(), threading.Event()

    def _access(self) -> None:
        if self.accesses_left is not None:
            self.accesses_left -= 1
            if self.accesses_left == 0:
                self.freezes.set()
                assert self.goes_on.wait(60)

    def size(self, path: str) -> int:
        self._access()
        return super().size(path)

    def write(self, path: str, data: bytes | Iterable[bytes]) -> None:
        self._access()
        super().write(path, data)


@pytest.mark.parametrize("at_its_end", [False, True], ids=["at work", "at its end"])
@pytest.mark.parametrize("accesses", range(1, 3), ids=["look", "write"])
def test_wherever_a_zombie_freezes_the_lease_of_its_successor_stays(
    tmp_path: Path, accesses: int, at_its_end: bool
) -> None:
    store = FreezingStore(str(tmp_path))
    zombie = Coordinator(tmp_path, store=store)
    zombie.storage.claim_generation()
    assert zombie.renews()
    if at_its_end:
        # So that the last look and the last write are the only ones.
        zombie.still_s = TIMES.timeout_s + 1
        zombie.renews()
    store.accesses_left = accesses
    if at_its_end:
        zombie.holder.on_end(JobStatus.CANCELLED, None)
    assert store.freezes.wait(60)
    successor = Coordinator(tmp_path)
    successor.storage.claim_generation()
    end_after(successor, JobStatus.FINISHED, None)
    lease = successor.lease
    assert lease is not None
    assert (lease.generation, lease.ended) == (2, "finished")
    store.goes_on.set()
    if not at_its_end:
        zombie.events.get(timeout=60)
    end_after(zombie, JobStatus.FAILED, SupersededError())
    assert successor.lease == lease


def test_storage_that_fails_is_told_once_and_tried_again(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.storage.claim_generation()
    assert coordinator.renews()

    def fail(*_: object) -> None:
        raise StorageError("no way", "there")

    with monkeypatch.context() as patch:
        patch.setattr("minirt.runtime.coordinator.lease_holder.write_lease", fail)
        coordinator.renews()
        assert not coordinator.renews()
    assert coordinator.renews()
    told = [one.getMessage() for one in caplog.records]
    assert told == ["the lease of the job cannot be renewed: no way: there"]


def test_a_standby_knows_the_run_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "mine")
    coordinator = Coordinator(tmp_path)
    coordinator.storage.claim_generation()
    end_after(coordinator, JobStatus.FINISHED, None)
    assert coordinator.lease is not None
    assert coordinator.lease.run == "mine"
