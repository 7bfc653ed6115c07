"""The life of a worker process: it introduces itself, is told what to run, and ends."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from multiprocessing.connection import Client

from minirt.protocol.job_events import WorkerFailed
from minirt.runtime.assembly import JobPackage
from minirt.runtime.control import ORPHANED_EXIT, Control
from minirt.runtime.messages import Assignment, Heartbeat, LifelineOpened, WorkerHello
from minirt.runtime.portable import portable
from minirt.runtime.sockets import listen
from minirt.runtime.worker import Worker, WorkerPlace


def run_worker(package: JobPackage, place: WorkerPlace) -> None:
    """The whole life of a worker, in its own process."""
    try:
        control = Control(Client(place.coordinator, authkey=place.token))
        _watch_coordinator(place)
    except (OSError, EOFError):
        os._exit(ORPHANED_EXIT)
    listener, address = listen(
        place.folder, f"w{place.generation}-{place.worker}", package.options.transport
    )
    control.send(WorkerHello(place.generation, place.worker, os.getpid(), address))
    assignment = control.receive()
    if isinstance(assignment, Assignment):
        try:
            life = Heartbeat(place.generation, place.worker, {})
            with control.repeating(life, package.options.limits.heartbeat_s):
                worker = Worker(package, place, control, listener, assignment)
            worker.run()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            control.send(WorkerFailed(place.generation, portable(error)))
    # The connection still is open: once it is closed this process may be killed.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()


def _watch_coordinator(place: WorkerPlace) -> None:
    """End this process as soon as the coordinator is gone, whatever the user's code is doing."""
    lifeline = Client(place.coordinator, authkey=place.token)
    lifeline.send(LifelineOpened())

    def wait() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(ORPHANED_EXIT)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
