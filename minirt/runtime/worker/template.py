"""The template: a process that has everything loaded and forks workers in milliseconds.

It is a fresh interpreter, not a fork of the user's process, which may have threads. It runs `main`
and learns the rest from its standard input. If loading the job starts threads as well, each worker is
another fresh interpreter: a fork would have none of those threads, but the locks that they held.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import pickle
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from dataclasses import dataclass, replace
from types import FrameType
from typing import NoReturn

import pyarrow as pa

from minirt.errors import WorkerLostError
from minirt.filesystems import Protocols
from minirt.runtime.control.connection import MessageConnection, connect_to
from minirt.runtime.control.host_hello import refuse_if_told
from minirt.runtime.control.messages import (
    Fork,
    HostBeat,
    JobOver,
    KillGeneration,
    TakeGraph,
    TemplateReady,
    WorkerExited,
    portable,
)
from minirt.runtime.control.package import JobPackage
from minirt.runtime.network.sockets import Address, Network
from minirt.runtime.worker.place import WorkerPlace
from minirt.runtime.worker.worker import run_worker
from minirt.standard_streams import flush_or_drop, outlive_readers
from minirt.wording import use_flags

PYTHON = (sys.executable, *(["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []))
"""Other processes of a job remove assertions if this one does."""
_COPIES = "copies"
_FORKED_OK, _FORKED_FAILED = 0, 1
_GC_THRESHOLDS = (100_000, 20, 50)
"""Records are many, short-lived and free of cycles: looking for cycles every 700 of them is waste."""


@dataclass(frozen=True, slots=True)
class TemplateStart:
    """What the template reads from its standard input.

    `package` is a pickled JobPackage, which is loaded once the `protocols` are known.
    """

    coordinator: Address
    network: Network
    import_path: list[str]
    protocols: Protocols
    package: bytes


@dataclass(frozen=True, slots=True)
class Beats:
    """Signs of life of a template on another host, in seconds. The coordinator answers each."""

    every_s: float
    silence_s_max: float
    """A coordinator from which nothing has come for so long is gone, or frozen."""


class Template:
    """Forks workers on request, and reports how they end."""

    def __init__(
        self,
        start: TemplateStart,
        package: JobPackage,
        control: MessageConnection,
        threads: tuple[str, ...],
    ) -> None:
        self._start = start
        self._package = package
        self._control = control
        self._threads = threads
        """The names of those that loading the job has started."""
        given = os.environ.get("PYTHONHASHSEED", "")
        self._hash_seed = given if given.isdecimal() else str(secrets.randbelow(2**32))
        """Of all interpreters that it starts: so sets of texts iterate in one order, as in forks."""
        self._workers: dict[int, Fork] = {}
        """What was to be forked, by process id."""
        self._heard_at = 0.0
        self.last_word: JobOver | None = None
        """What the coordinator has said of the end of the job."""

    def run(self, beats: Beats | None = None) -> None:
        """Serve the coordinator until it is gone; then no worker may be left."""
        try:
            self._run(beats)
        finally:
            self._end_workers()

    def _run(self, beats: Beats | None) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(read_end, selectors.EVENT_READ)
        self._control.send(TemplateReady(os.getpid(), self._threads))
        beat_at = turned_at = self._heard_at = time.monotonic()
        while self._obey():  # Also at first: what has come already makes no socket readable.
            left_s = None if beats is None else max(0.0, beat_at - time.monotonic())
            for key, _ in selector.select(left_s):
                if key.fileobj == read_end:
                    os.read(read_end, 4096)
                    self._reap()
            if beats is None:
                continue
            before, turned_at = turned_at, time.monotonic()
            if turned_at - before > beats.silence_s_max / 2:
                self._heard_at = turned_at  # It was frozen itself, and could hear nothing.
            if turned_at - self._heard_at > beats.silence_s_max:
                return
            if turned_at >= beat_at:
                beat_at = turned_at + beats.every_s
                with contextlib.suppress(OSError):  # Its end is noticed where it is read.
                    self._control.send(HostBeat())

    def _obey(self) -> bool:
        try:
            messages = self._control.arrived()
        except (EOFError, OSError):
            return False
        if messages:
            self._heard_at = time.monotonic()
        for message in messages:
            match message:
                case Fork():
                    self._start_worker(message)
                case TakeGraph(graph):
                    self._take_graph(graph)
                case JobOver():
                    self.last_word = message
                case dict():  # Its storage turned out not to be that of the job.
                    refuse_if_told(message)
                case KillGeneration(generation):
                    workers = self._workers.items()
                    self._kill([pid for pid, fork in workers if fork.generation == generation])
        return True

    def _take_graph(self, graph: bytes) -> None:
        """At another parallelism links may be of another kind, and need what was not loaded yet."""
        self._package = replace(self._package, graph=graph)
        self._package.choose_kernels()
        if self._threads:
            self._start = replace(self._start, package=pickle.dumps(self._package))

    def _start_worker(self, fork: Fork) -> None:
        start = self._start
        place = WorkerPlace(
            *(fork.generation, fork.worker, start.coordinator, start.network), fork.life
        )
        pid = self._spawn(place) if self._threads else self._fork(place)
        self._workers[pid] = fork

    def _spawn(self, place: WorkerPlace) -> int:
        """Start an interpreter that loads the job by itself; its process id."""
        with tempfile.TemporaryFile() as given:
            pickle.dump((self._start, place), given)
            given.seek(0)
            command = "from minirt.runtime.worker.template import spawned; spawned()"
            environment = {**os.environ, "PYTHONHASHSEED": self._hash_seed}
            process = subprocess.Popen([*PYTHON, "-c", command], stdin=given, env=environment)
        process.returncode = 0  # It is reaped as those that were forked are.
        return process.pid

    def _fork(self, place: WorkerPlace) -> int:
        """The process id of the worker; in the worker it does not return."""
        gc.freeze()
        with warnings.catch_warnings():
            # Python 3.12 and newer warn of threads that libraries keep in C, as OpenBLAS does, which
            # are ready for forks. A job with threads of Python is not forked.
            warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        status = _FORKED_FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if signal.getsignal(signal.SIGTERM) is end_orderly:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._control.close()
            seed_generators()
            run_worker(self._package, place)
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
        """Wait until they are really gone: one may be about to put a file into the job's folder."""
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
                fork = self._workers.pop(pid, Fork(0, 0))
                exited = WorkerExited(fork.generation, fork.worker, status, fork.life)
                with contextlib.suppress(OSError):
                    self._control.send(exited)


def main() -> None:
    """Entry point of the process."""
    start: TemplateStart = pickle.load(sys.stdin.buffer)
    set_up(start)
    try:
        _serve(start)
    finally:
        # The coordinator may have been killed; if it has not, it has no more use for it either.
        shutil.rmtree(start.network.folder, ignore_errors=True)
    _leave()


def _leave() -> NoReturn:
    """End as an interpreter does, but do not take all modules apart: the end of the job waits for it."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        flush_or_drop(stream)
    os._exit(_FORKED_OK)


def spawned() -> None:
    """Entry point of a worker that was not forked."""
    start, place = pickle.load(sys.stdin.buffer)
    set_up(start)
    run_worker(load(start), place)
    os._exit(_FORKED_OK)  # As a fork does, without waiting for threads of the job.


def load(start: TemplateStart) -> JobPackage:
    """The job, with all modules that it needs imported."""
    start.protocols.register()
    package: JobPackage = pickle.loads(start.package)
    if package.in_flags:
        use_flags()
    copies_bytes = package.options.limits.local_copies_bytes
    if package.storage is not None and copies_bytes:
        folder = os.path.join(start.network.folder, _COPIES)
        package = replace(package, storage=package.storage.near(folder, copies_bytes))
    graph = package.load_graph()
    if any(node.spec.in_arrays for vertex in graph.vertices for node in vertex.operators):
        pa.array([])  # Imports pandas, else each worker does, in the middle of its first records.
    package.choose_kernels()
    return package


def set_up(start: TemplateStart) -> None:
    """Make the process what all processes of a job are."""
    sys.path[:] = start.import_path
    outlive_readers()
    for stream in (sys.stdout, sys.stderr):  # Workers are killed, and share what they print to.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    gc.set_threshold(*_GC_THRESHOLDS)


def seed_generators() -> None:
    """Give a fork random numbers of its own, also from the generators that Python does not seed anew.

    All forks would else draw the numbers that the template had next, and draw them again after a restart.
    """
    for name in ("numpy.random", "torch"):
        seed = getattr(sys.modules.get(name), "seed", None)
        if seed is not None:
            seed()


def _serve(start: TemplateStart) -> None:
    try:
        control = connect_to(start.coordinator, start.network)
    except (OSError, WorkerLostError):  # The coordinator has gone meanwhile.
        return
    try:
        template = Template(start, load(start), control, threads_of_job())
    except Exception as error:
        control.send(portable(error))
        return
    template.run()


def end_orderly(number: int, frame: FrameType | None) -> None:
    """A signal handler for a template that is on its own: no worker may be left."""
    sys.exit(128 + number)


def threads_of_job() -> tuple[str, ...]:
    """The names of the threads that loading the job has started."""
    started = [one for one in threading.enumerate() if one is not threading.main_thread()]
    return tuple(thread.name for thread in started)
