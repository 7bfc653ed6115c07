"""The template: a process that has everything loaded and forks workers in milliseconds.

It is a fresh interpreter, not a fork of the user's process, which may have threads. It runs `main`
and learns the rest from its standard input.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import selectors
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection

from minirt.runtime.assembly import JobPackage
from minirt.runtime.messages import Fork, KillGeneration, TemplateReady, WorkerExited, portable
from minirt.runtime.sockets import Address
from minirt.runtime.worker import WorkerPlace, run_worker

_FORKED_OK, _FORKED_FAILED = 0, 1
_GC_THRESHOLDS = (100_000, 20, 50)
"""Records are many, short-lived and free of cycles: looking for cycles every 700 of them is waste."""


@dataclass(frozen=True, slots=True)
class TemplateStart:
    """What the template reads from its standard input. `package` is a pickled JobPackage."""

    coordinator: Address
    token: bytes
    folder: str
    import_path: list[str]
    package: bytes


class Template:
    """Forks workers on request, and reports how they end."""

    def __init__(self, start: TemplateStart, package: JobPackage, control: Connection) -> None:
        self._start = start
        self._package = package
        self._control = control
        self._workers: dict[int, tuple[int, int]] = {}
        """Generation and number of the worker, by process id."""

    def run(self) -> None:
        """Until the coordinator is gone; then no worker may be left."""
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(read_end, selectors.EVENT_READ)
        self._control.send(TemplateReady(os.getpid()))
        while True:
            for key, _ in selector.select():
                if key.fileobj == read_end:
                    os.read(read_end, 4096)
                    self._reap()
                elif not self._obey():
                    self._end_workers()
                    return

    def _obey(self) -> bool:
        try:
            message = self._control.recv()
        except (EOFError, OSError):
            return False
        match message:
            case Fork(generation, worker):
                self._fork(generation, worker)
            case KillGeneration(generation):
                self._kill([pid for pid, (of, _) in self._workers.items() if of == generation])
        return True

    def _fork(self, generation: int, worker: int) -> None:
        gc.freeze()
        pid = os.fork()
        if pid:
            self._workers[pid] = (generation, worker)
            return
        status = _FORKED_FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            start = self._start
            run_worker(
                self._package,
                WorkerPlace(generation, worker, start.coordinator, start.token, start.folder),
            )
            status = _FORKED_OK
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _kill(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _end_workers(self) -> None:
        """Until they are really gone: one may be about to put a file into the job's folder."""
        self._kill(list(self._workers))
        for pid in self._workers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                generation, worker = self._workers.pop(pid, (0, 0))
                with contextlib.suppress(OSError):
                    self._control.send(WorkerExited(generation, worker, status))


def main() -> None:
    """Entry point of the process."""
    start: TemplateStart = pickle.load(sys.stdin.buffer)
    sys.path[:] = start.import_path
    for stream in (sys.stdout, sys.stderr):  # Workers are killed, and share what they print to.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    try:
        _serve(start)
    finally:
        # The coordinator may have been killed; if it has not, it has no more use for it either.
        shutil.rmtree(start.folder, ignore_errors=True)


def _serve(start: TemplateStart) -> None:
    try:
        control = Client(start.coordinator, authkey=start.token)
    except (OSError, EOFError):  # The coordinator has gone meanwhile.
        return
    try:
        package: JobPackage = pickle.loads(start.package)
        package.load_graph()
    except Exception as error:
        control.send(portable(error))
        return
    gc.set_threshold(*_GC_THRESHOLDS)
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate()[1:])
        control.send(
            RuntimeError(f"importing the job started threads ({names}): workers cannot be forked")
        )
        return
    Template(start, package, control).run()
