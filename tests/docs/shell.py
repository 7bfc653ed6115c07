"""The commands of a page in a shell, as a reader types them; those in the foreground start warm.

Bash would start an interpreter for each `minirt` and each `python`. Here both are functions that have this
process start it, with the folder, variables and streams of the shell: it comes from the nursery of
`tests/warm_processes.py`. A `python` in the background is started by bash, as the page may kill it by the
process id that bash knows.
"""

from __future__ import annotations

import marshal
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.blocks import environment

_TIMEOUT_S = 280.0
_STREAMS = 3
_CLIENT = """
import marshal, os, socket, sys

with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    socket.send_fds(door, [b"?"], [0, 1, 2])
    door.sendall(marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ))))
    door.shutdown(socket.SHUT_WR)
    status = int(door.recv(16))
sys.exit(status if status >= 0 else 128 - status)
"""
_FUNCTIONS = """
warm() { CLIENT "$@"; }
minirt() { warm -m minirt "$@"; }
"""
_IN_THE_FOREGROUND = re.compile(r"^python (?!.*&\s*(?:#.*)?$)", re.MULTILINE)


def run_commands(
    commands: str, folder: Path, *, options: str = "-c", timeout: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run commands in a folder by bash, called with these options."""
    with _door() as functions:
        typed = functions + _IN_THE_FOREGROUND.sub("warm ", commands)
        return subprocess.run(
            ["bash", options, typed],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )


@contextmanager
def _door() -> Iterator[str]:
    """While the body runs, the functions of bash that it gets are answered."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/door")
        listener.listen()
        opener = threading.Thread(target=_answer_all, args=(listener,))
        opener.start()
        client = [sys.executable, "-I", "-S", "-c", _CLIENT, f"{folder}/door"]
        try:
            yield _FUNCTIONS.replace("CLIENT", shlex.join(client))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            opener.join()


def _answer_all(listener: socket.socket) -> None:
    while True:
        try:
            asking = listener.accept()[0]
        except OSError:  # Nobody asks any more.
            return
        threading.Thread(target=_answer, args=(asking,)).start()


def _answer(asking: socket.socket) -> None:
    """Run the interpreter that is asked for, and tell its exit status."""
    with asking:
        streams = socket.recv_fds(asking, 1, _STREAMS)[1]
        with asking.makefile("rb") as request:
            arguments, folder, environ = marshal.load(request)
        stdin, stdout, stderr = streams
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder, env=environ, stdin=stdin, stdout=stdout, stderr=stderr,
        ) as program:  # fmt: skip
            for stream in streams:
                os.close(stream)
            status = program.wait()
        asking.sendall(str(status).encode())
