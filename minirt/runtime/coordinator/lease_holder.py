"""Renews the lease of a running job, and notices when another coordinator has taken the job over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from minirt.errors import StorageError, SupersededError
from minirt.monitoring.causes import shortened
from minirt.monitoring.logs import logger_of
from minirt.process_names import name_of_this_process
from minirt.protocol.job_events import GenerationFailed, JobEvent, JobStatus
from minirt.protocol.lease import INTERRUPTED, Lease, LeaseTimes
from minirt.runtime.coordinator.observer import JobObserver
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import RUN_VARIABLE, write_lease
from minirt.threads import start_thread

logger = logger_of("coordinator")

INTERRUPTING_SIGNALS = frozenset({"SIGTERM", "SIGHUP"})
"""The signals by which machines and service managers end a program."""

_UNCLAIMED_S = 0.05
"""How often it looks whether the first generation is claimed: until then there is nothing to say."""

_OVERDUE = 2
"""So many intervals without a look: no standby takes a job over that was silent for less."""


class LeaseHolder(JobObserver):
    """Writes the lease in a thread of its own: storage that hangs must not hold the coordinator up.

    `still_s` says for how long the coordinator's loop has not turned. One that stands still for longer than
    the timeout lets the lease fall silent, as if its process were gone.
    """

    def __init__(
        self,
        job: str,
        storage: CheckpointStorage,
        times: LeaseTimes,
        still_s: Callable[[], float],
        post: Callable[[JobEvent], None],
    ) -> None:
        self._storage = storage
        self._times = times
        self._still_s = still_s
        self._post = post
        run = os.environ.get(RUN_VARIABLE) or uuid4().hex
        self._lease = Lease(job, run, 0, 0, times, process=name_of_this_process())
        self._ended: tuple[JobStatus, Exception | None] | None = None
        self._interrupted = False
        self._failing = False
        self._looked_at = 0.0
        """When nobody else ran the job, by the monotonic clock."""
        self._wake = threading.Event()
        self._thread = start_thread("minirt-lease", self._run, self._on_error)

    def on_told_to_end(self, reason: str) -> None:
        # Ctrl-C is a person's wish. A service manager ends the program, not the job: a standby runs it on.
        self._interrupted = reason in INTERRUPTING_SIGNALS

    def on_end(self, status: JobStatus, error: Exception | None) -> None:
        self._ended = (status, error)
        self._wake.set()

    def check(self, *, surely: bool) -> None:
        """Raise SupersededError if this program does not run the job any more; for any thread.

        Looks at the storage `surely`, or else only if that is overdue, as in a program that was frozen.
        Where storage fails, nobody knows of another program.
        """
        overdue = time.monotonic() - self._looked_at > _OVERDUE * self._times.interval_s
        if not (self._claimed and (surely or overdue)):
            return
        try:
            replaced = self._is_replaced()
        except StorageError as error:
            logger.warning("nobody knows whether another program runs the job: %s", error)
            return
        if replaced:
            raise self._storage.superseded()

    def close(self) -> None:
        """The job is over. If nobody was told how it ended, its lease falls silent."""
        self._wake.set()
        self._thread.join(self._times.timeout_s)

    def _run(self) -> None:
        while not self._wake.wait(self._times.interval_s if self._claimed else _UNCLAIMED_S):
            if self._claimed and self._still_s() <= self._times.timeout_s:
                self._try(self._renew)
        if self._ended is not None and self._claimed:
            self._try(self._end)

    @property
    def _claimed(self) -> bool:
        return self._storage.generation > 0

    def _try(self, access: Callable[[], None]) -> None:
        try:
            access()
            self._failing = False
        except StorageError as error:
            if not self._failing:
                logger.warning("the lease of the job cannot be renewed: %s", error)
            self._failing = True

    def _renew(self) -> None:
        if self._is_replaced():
            self._post(GenerationFailed(self._storage.superseded(), fatal=True))
            self._wake.wait()  # The job ends, and has no lease to write any more.
        else:
            self._write()

    def _is_replaced(self) -> bool:
        began_at = time.monotonic()
        replaced = self._storage.is_superseded()
        if not replaced:
            self._looked_at = began_at
        return replaced

    def _write(self) -> None:
        before, generation = self._lease, self._storage.generation
        self._lease = replace(before, generation=generation, renewals=before.renewals + 1)
        write_lease(self._storage.store, self._lease)

    def _end(self) -> None:
        assert self._ended is not None
        status, error = self._ended
        if isinstance(error, SupersededError) or self._storage.is_superseded():
            return  # The lease is that of the successor.
        cause = None if error is None else shortened(str(error))
        goes_on = self._interrupted and status in (JobStatus.CANCELLED, JobStatus.STOPPED)
        self._lease = replace(
            self._lease, ended=INTERRUPTED if goes_on else status.value, cause=cause
        )
        self._write()

    def _on_error(self, error: BaseException) -> None:
        logger.error("the lease of the job is not renewed any more: %s", error, exc_info=error)
