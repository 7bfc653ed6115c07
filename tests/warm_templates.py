"""Templates for the jobs of tests: forks of one process that has minirt imported already.

A template is an interpreter that imports minirt, which takes most of the time of a small job. Here it is
the child of a *nursery*, which is started once for each process of pytest and imports minirt once. From
then on a template does what it always does. Jobs that programs of the tests start have templates of the
usual kind.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from minirt.runtime.coordinator.template_process import TemplateProcess

_NUMBER = struct.Struct("<q")
_UP_S_MAX = 60.0

cold_spawn = TemplateProcess._spawn
"""How templates start where no test is in between, for those who look at what they import."""

forked: list[int] = []
"""The process ids of all templates that this process has had from its nursery."""


class Nursery:
    """The process that forks templates; it ends when its socket closes."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from tests.warm_templates import serve; serve({theirs.fileno()})",
                ],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def fork(self, given: bytes) -> WarmTemplate:
        """A template that reads `given` from its standard input, in this folder and environment."""
        told, tells = os.pipe()
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            files = [stdin.fileno(), 1, 2, tells]
            environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            # The environment may be larger than a packet.
            with tempfile.TemporaryFile() as request:
                pickle.dump((os.getcwd(), environ), request)
                request.flush()
                socket.send_fds(self._sock, [b"fork"], [*files, request.fileno()])
        os.close(tells)
        return WarmTemplate(told)

    @property
    def gone(self) -> bool:
        """Whether it has ended: the first test that starts a job and fails takes it along."""
        return self._process.poll() is not None

    def close(self) -> None:
        self._sock.close()
        self._process.wait()


class WarmTemplate:
    """As much of `subprocess.Popen` as is asked of a template."""

    def __init__(self, told: int) -> None:
        self._told = told
        self.returncode: int | None = None
        pid = self._next(_UP_S_MAX)
        assert pid is not None, "the nursery forks no template"
        self.pid = pid
        forked.append(pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._next(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._next(timeout)
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("template", timeout)
        return self.returncode

    def _next(self, timeout: float | None) -> int | None:
        if not select.select([self._told], [], [], timeout)[0]:
            return None
        data = os.read(self._told, _NUMBER.size)
        return _NUMBER.unpack(data)[0] if data else -signal.SIGKILL

    def __del__(self) -> None:
        os.close(self._told)


def serve(fd: int) -> None:
    """The life of a nursery."""
    from minirt.kernels import compiled  # noqa: F401 - so that children have it.
    from minirt.runtime.worker import template  # noqa: F401

    pa.array([])  # And pandas: each template of a job with columns would import it.
    gc.freeze()  # No child looks for cycles in it, which would copy all its pages.
    sock = socket.socket(fileno=fd)
    while True:
        said, files, _, _ = socket.recv_fds(sock, 16, 5)
        if not said:
            return
        _reap()
        if os.fork() == 0:
            sock.close()
            _look_after(*files)
        for file in files:
            os.close(file)


def _reap() -> None:
    """Let those go who have looked after templates; what they have used up counts with this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _look_after(stdin: int, stdout: int, stderr: int, tells: int, request: int) -> NoReturn:
    """Fork a template, and tell its process id and then how it ended."""
    pid = os.fork()
    if pid == 0:
        _be_template(stdin, stdout, stderr, tells, request)
    for file in (stdin, stdout, stderr, request):
        os.close(file)
    for file in (0, 1, 2):
        os.close(file)
    _, status = os.waitpid(pid, 0)
    os.write(tells, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _be_template(stdin: int, stdout: int, stderr: int, tells: int, request: int) -> NoReturn:
    os.setsid()
    with os.fdopen(request, "rb") as file:
        file.seek(0)
        folder, environ = pickle.load(file)
    for here, there in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(here, there)
        os.close(here)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    os.write(tells, _NUMBER.pack(os.getpid()))  # Now its process group can be killed.
    os.close(tells)
    from minirt.runtime.worker.template import main

    code = 1
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def warm_templates() -> Iterator[None]:
    """While the body runs, templates come from a nursery, which the first of them starts."""
    nursery: list[Nursery] = []

    def spawn(template: Any) -> WarmTemplate:
        if not nursery or nursery[-1].gone:
            nursery.append(Nursery())
        return nursery[-1].fork(template._start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TemplateProcess, "_spawn", spawn)
        yield
    for one in nursery:
        one.close()
