"""Savepoints for the threads of a user's program: requests are checked, and wait for their answer."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from minirt.errors import ConfigurationError, SavepointFailedError
from minirt.modes import same_mode
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.job_events import AnswerSavepoint, SavepointRequested
from minirt.protocol.reasons import SavepointFailure
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.savepoints import check_target


class SavepointDesk:
    """Takes requests from any thread, and answers from the coordinator's.

    `default_mode` is that of the job, `modes` are all that its workers know.
    """

    def __init__(
        self,
        storage: CheckpointStorage | None,
        modes: Mapping[str, CheckpointMode],
        default_mode: str,
    ) -> None:
        self._storage = storage
        self._modes = modes
        self._default_mode = default_mode
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Savepoint]] = {}
        self._closed_because: SavepointFailure | None = None

    def ask(
        self,
        post: Callable[[SavepointRequested], None],
        path: str | os.PathLike[str] | None,
        mode: str | CheckpointMode | None,
        afterwards: Afterwards,
        reason: str | None = None,
    ) -> Future[Savepoint]:
        """Hand a request to the coordinator by `post`.

        Raises ConfigurationError or StorageError if it could not be served.
        """
        if self._storage is None:
            raise ConfigurationError(
                "a savepoint needs a job with checkpointing; this one can only be cancelled"
            )
        name = self._mode(mode)
        root = None
        if path is not None:
            target = self._storage.store.at(os.fspath(path))
            if target.is_of_one_process:
                raise ConfigurationError(
                    f"{target.root} is in the memory of one process: a job with worker processes cannot "
                    "be restored from there; use a folder"
                )
            check_target(target)
            root = target.root
        request = SavepointRequest(next(self._ids), name, root, afterwards, reason)
        answer: Future[Savepoint] = Future()
        with self._lock:
            if self._closed_because is not None:
                raise _no_savepoint(self._closed_because)
            self._waiting[request.id] = answer
        post(SavepointRequested(request))
        return answer

    @property
    def storage_root(self) -> str | None:
        """Where the job stores its checkpoints, if it does."""
        return None if self._storage is None else self._storage.store.root

    def answer(self, command: AnswerSavepoint) -> None:
        """Hand the answer to the thread that asked."""
        with self._lock:
            waiting = self._waiting.pop(command.request_id)
        if command.savepoint is not None:
            waiting.set_result(command.savepoint)
        else:
            assert command.failure is not None
            waiting.set_exception(_no_savepoint(command.failure))

    def close(self, because: SavepointFailure) -> None:
        """Refuse all requests, those that wait and those to come: nobody will answer any more."""
        with self._lock:
            self._closed_because = because
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(_no_savepoint(because))

    def _mode(self, mode: str | CheckpointMode | None) -> str:
        if mode is None:
            return self._default_mode
        named = mode.replace("-", "_") if isinstance(mode, str) else getattr(mode, "name", None)
        name = str(named)
        known_mode = self._modes.get(name)
        if known_mode is None:
            known = ", ".join(sorted(self._modes))
            raise ConfigurationError(
                f"the workers of this job do not know the checkpoint mode {mode!r}; they know {known}"
            )
        if not (isinstance(mode, str) or same_mode(mode, known_mode)):
            raise ConfigurationError(
                f"the workers of this job know the checkpoint mode {name} as {known_mode!r}, not as "
                f"{mode!r}: give its name, {name!r}, or start the job with the other one"
            )
        return name


def _no_savepoint(failure: SavepointFailure) -> SavepointFailedError:
    return SavepointFailedError(f"no savepoint: {failure}", failure.reason)
