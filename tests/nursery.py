"""The processes behind `warm_processes`: one that has minirt imported, and its forks, which run programs.

A fork runs its program on the top level of `__main__`, so that it ends as any interpreter does, whatever
ends it.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

cold_start: Callable[..., int] = subprocess._fork_exec  # type: ignore[attr-defined]
"""How `subprocess` starts processes where no test is in between."""

TEMPLATE = ["-c", "from minirt.runtime.worker.template import main; main()"]
AGENT = ["-m", "minirt", "host"]
ROOT = Path(__file__).parents[1]
COMMAND_BYTES = 2048
"""So much of a command line is shown."""

_UP_S_MAX = 60.0
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000
_WITHIN = ["ip", "netns", "exec"]
"""Has what follows, the name of a network namespace and a command, replace it there."""
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "ARROW_", "NUMBA_", "OMP_", "OPENBLAS_", "MALLOC_")
"""Variables that an interpreter or a library reads when it starts; their names begin so."""
_LOADED = (
    "minirt.kernels.compiled",
    "minirt.runtime.coordinator.inline",
    "minirt.runtime.cluster.process_cluster",
    "minirt.runtime.program.execute",
    "minirt.runtime.worker.agent",
    "minirt.runtime.worker.template",
    "minirt.testing",
)

LOADED_IF_USED = (
    "s3fs",
    "gcsfs",
    "adlfs",
    "deltalake",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "psycopg",
    "minirt_connectors.postgres",
    "confluent_kafka",
)
"""These as well, where the tests have them: jobs of the same tests need them."""


_loaded_modules: set[str] = set()
"""Names of the modules that forks find loaded."""


@dataclass(frozen=True)
class Start:
    """What a fork becomes."""

    arguments: list[str]
    folder: str
    environ: dict[bytes, bytes]
    group: int | None
    """The process group; None for a session of its own."""
    namespace: str | None
    """The network namespace; None for that of the test."""

    @staticmethod
    def of(call: Sequence[Any]) -> Start | None:
        """What `subprocess` is about to start; None if only a fresh interpreter will do."""
        arguments, _, close_fds, kept, folder, environ = call[:6]
        session, group, *users, umask, prepare = call[15:22]
        words, namespace = [os.fsdecode(word) for word in arguments], None
        if words[:3] == _WITHIN and len(words) > 4:
            namespace, words = words[3], words[4:]
        folder = os.getcwd() if folder is None else os.path.abspath(os.fsdecode(folder))
        given = dict(os.environb if environ is None else (one.split(b"=", 1) for one in environ))
        if words[0] != sys.executable or not _is_plain(words[1:], folder):
            return None
        if not close_fds or len(kept) > 1 or prepare or umask != -1 or users != [None] * 3:
            return None
        if not os.path.isdir(folder) or _read_at_start(given) != _read_at_start(os.environb):
            return None
        own = group if group > 0 else 0 if group == 0 else os.getpgrp()
        return Start(words, folder, given, None if session else own, namespace)


def _is_plain(words: list[str], folder: str) -> bool:
    """Whether this is code, a module or a script, without options of the interpreter."""
    if words[0] in ("-c", "-m"):
        return len(words) > 1
    return not words[0].startswith("-") and os.path.isfile(os.path.join(folder, words[0]))


def _read_at_start(environ: Any) -> dict[bytes, bytes]:
    prefixes = tuple(prefix.encode() for prefix in _AT_START)
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(prefixes) and name != b"PYTHONPATH"
    }


class Door:
    """Where a process asks for forks that are its children, one after the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None)

    def fork(self, start: Start, files: Sequence[int]) -> int | None:
        """The process id of the fork that becomes this, with these standard streams.

        None if nobody answers, or a stream is closed.
        """
        with self._lock:
            self._adopt(True)
            try:
                return self._ask(start, files)
            finally:
                self._adopt(False)

    def _adopt(self, orphans: bool) -> None:
        """Whether this process becomes the parent of orphans among what it has started."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)

    def _ask(self, start: Start, files: Sequence[int]) -> int | None:
        told, tells = os.pipe()
        with os.fdopen(told, "rb") as answer:
            try:
                with (
                    tempfile.TemporaryFile() as request
                ):  # An environment may be larger than a packet.
                    marshal.dump(astuple(start), request)
                    request.flush()
                    socket.send_fds(self._sock, [b"start"], [*files, tells, request.fileno()])
            except OSError:
                return None
            finally:
                os.close(tells)
            if not select.select([answer], [], [], _UP_S_MAX)[0]:
                return None
            return int(answer.read() or 0) or None

    def close(self) -> None:
        self._sock.close()


def streams(call: Sequence[Any]) -> list[int]:
    """The descriptors of the standard streams of what `subprocess` is about to start."""
    given = (call[6], call[9], call[11])
    return [own if fd == -1 else fd for own, fd in enumerate(given)]


def serve(fd: int, used: Sequence[str]) -> CodeType:
    """The life of a nursery. It returns in forks only, with the program to run."""
    paths = sys.path[1:]
    atexit.register(_leave_loaded_modules)  # What is registered first is called last.
    _load(used)
    sock = socket.socket(fileno=fd)
    while True:
        files = _next(sock)
        if _is_adopted_fork():
            sock.close()
            return _begin(files, paths)
        for file in files:
            os.close(file)


def _is_adopted_fork() -> bool:
    """Fork this process; the one that has asked adopts the fork. True in the fork."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0005)
    return True


def _begin(files: list[int], paths: list[str]) -> CodeType:
    """Make this process what is asked for in the last of the files; returns the program."""
    start = _read(files)
    # All children of templates and agents are workers.
    if start.arguments[1:] != TEMPLATE and start.arguments[1:4] != AGENT:
        wanted = _fork_spare(files)
        if wanted is not None:
            return _begin(wanted, paths)
    return _become(start, files, paths)


def _fork_spare(files: list[int]) -> list[int] | None:
    """Fork a spare, which waits for the first interpreter that this process starts, and becomes it.

    In the spare it returns the files of that one; before, the spare forks the next one. `files` are those
    of this process.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for file in files:
            os.close(file)
        interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)  # It would print a traceback.
        while True:
            wanted = _next(theirs)
            if not _is_adopted_fork():
                break
            for file in wanted:
                os.close(file)
        signal.signal(signal.SIGINT, interrupted)
        theirs.close()
        return wanted
    theirs.close()
    door, mine = Door(ours), os.getpid()

    def fork_exec(*call: Any) -> int:
        start = Start.of(call) if os.getpid() == mine else None
        return (start and door.fork(start, streams(call))) or cold_start(*call)

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]
    return None


def _load(used: Sequence[str]) -> None:
    import pyarrow as pa

    import minirt.cli

    for name in (*_LOADED, *used):
        importlib.import_module(name)
    for name in minirt.__all__:
        getattr(minirt, name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        minirt.cli.app(["--help"])  # And what the first command of a process loads.
    pa.array([])  # And pandas: each template of a job with columns would import it.
    if "s3fs" in used:
        _read_models_once()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # Programs have their own; this one lives on in its functions.
    _loaded_modules.update(sys.modules.keys() - {"__main__", "builtins", "sys"})
    gc.freeze()  # No child looks for cycles in it, which would copy all its pages.


def _read_models_once() -> None:
    """What S3 can do stands in large files of JSON, which the first client of each process would read."""
    from botocore.loaders import JSONFileLoader
    from botocore.session import get_session

    once = functools.cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda self, path: once(path)
    get_session().create_client("s3", "us-east-1", endpoint_url="http://127.0.0.1:1")


def _leave_loaded_modules() -> None:
    """Keep an interpreter that ends from taking apart what the nursery has loaded.

    To free it would copy nearly all pages of the nursery: that takes longer than many a program.
    """
    left = {name: sys.modules.pop(name) for name in _loaded_modules & sys.modules.keys()}
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))


def _next(sock: socket.socket) -> list[int]:
    said, files, _, _ = socket.recv_fds(sock, 16, 5)
    if not said:
        os._exit(0)
    return files


def _read(files: list[int]) -> Start:
    """What is asked for; it stands in the last of the files."""
    with os.fdopen(files.pop(), "rb") as file:
        file.seek(0)
        return Start(*marshal.load(file))


def _become(start: Start, files: list[int], paths: list[str]) -> CodeType:
    """Make this process what was asked for; returns the program."""
    *standard, tells = files
    if start.arguments[1:] == TEMPLATE:
        atexit.unregister(_leave_loaded_modules)  # A template never takes its modules apart.
    if start.group is None:
        os.setsid()
    else:
        os.setpgid(0, start.group)
    if start.namespace is not None:
        _enter(start.namespace)
    os.chdir(start.folder)
    os.environb.clear()
    os.environb.update(start.environ)
    time.tzset()
    for fd, received in enumerate(standard):
        os.dup2(received, fd)
        os.close(received)
    _open_streams()
    _show(start.arguments)
    importlib.invalidate_caches()
    program = _program(start.arguments[1:], paths)
    os.write(tells, b"%d" % os.getpid())  # By now its process group can be killed.
    os.close(tells)
    return program


def _enter(namespace: str) -> None:
    there = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(there, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(there)


def _open_streams() -> None:
    """As an interpreter does: a terminal is written line by line."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        unbuffered = isinstance(before.buffer, io.FileIO)
        mode = "w" if fd else "r"
        stream = io.TextIOWrapper(
            open(fd, mode + "b", 0 if unbuffered else -1, closefd=False),  # noqa: SIM115
            encoding=before.encoding,
            errors=before.errors,
            newline="\n" if fd else None,
            line_buffering=name == "stderr" or os.isatty(fd),
            write_through=before.write_through,
        )
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _show(arguments: list[str]) -> None:
    """Put them into the memory from which Linux reads the command line of this process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    shown = b"".join(os.fsencode(word) + b"\0" for word in arguments)[: end - begin - 1]
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)


def _program(words: list[str], paths: list[str]) -> CodeType:
    """What the interpreter with these arguments runs, with its `sys.argv`, `sys.path` and `__main__`."""
    main = sys.modules["__main__"].__dict__
    main.clear()
    main.update(__name__="__main__", __doc__=None, __package__=None, __spec__=None)
    main.update(__builtins__=builtins, __loader__=BuiltinImporter, __annotations__={})
    sys.orig_argv = [sys.executable, *words]
    first = words[0]
    if first == "-c":
        sys.argv, folder, code = words[:1] + words[2:], "", words[1]
    elif first == "-m":
        sys.argv, folder = words[:1] + words[2:], os.getcwd()
        code = f"__import__('runpy')._run_module_as_main({words[1]!r})"
    else:
        sys.argv, folder = words, os.path.dirname(os.path.realpath(first))
    given = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [folder, *filter(None, given.split(os.pathsep)), *paths]
    if first in ("-c", "-m"):
        return compile(code, "<string>", "exec", dont_inherit=True)
    path = os.path.abspath(first)
    main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
