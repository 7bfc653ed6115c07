"""The host agent, `minirt host`: a template that somebody else has started, for a job of another host."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from minirt.errors import ConfigurationError, MinirtError, StorageError, WorkerLostError
from minirt.runtime.control.connection import MessageConnection, connect_to
from minirt.runtime.control.host_hello import (
    Credentials,
    HostHello,
    HostWelcome,
    refuse_if_told,
)
from minirt.runtime.control.messages import JobOver, portable
from minirt.runtime.control.package import JobPackage
from minirt.runtime.network.sockets import Address, Network, shown
from minirt.runtime.worker.template import (
    Beats,
    Template,
    TemplateStart,
    end_orderly,
    load,
    set_up,
    threads_of_job,
)

_RETRY_S = 0.3
_PATIENCE_S = 10.0
"""How long the coordinator of a job that is up may not be reached, as the network may be slow."""
_ANSWER_S_MAX = 30.0
"""How long a coordinator that has let the agent in may take to say what the job is."""


def run_agent(
    coordinators: Sequence[Address],
    credentials: Callable[[], Credentials],
    slots: int,
    interface: str | None,
    wait_s: float | None,
    say: Callable[[str], None],
) -> bool:
    """Join the job whose coordinator listens at one of the addresses, and serve it until that is gone.

    Returns whether to look for the program that goes on with it: not if the coordinator says that it is
    over, and without a word only if there are several addresses.
    The addresses are tried in turn. `credentials` is asked before each turn, and raises
    FileNotFoundError as long as there are none. With `wait_s` the agent may start before the job: it says
    why it waits, for at most so many seconds. Without, there must be credentials. Workers listen at the
    address `interface` of this host; by default it is the one from which this host reaches the coordinator.
    Raises ConfigurationError for an address that this host does not have, for missing credentials, and if
    the job refuses this host; NoCoordinatorError if there is no coordinator in time.
    """
    signal.signal(signal.SIGTERM, end_orderly)
    if interface is not None:
        _refuse_foreign(interface)
    folder = tempfile.mkdtemp(prefix="minirt-")
    try:
        met = _meet(coordinators, credentials, folder, slots, interface, wait_s, say)
        last_word = _serve(met)
        return len(coordinators) > 1 if last_word is None else last_word.goes_on
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class NoCoordinatorError(MinirtError):
    """Nobody who knows the job has listened at any address in time."""


@dataclass(frozen=True, slots=True)
class _Met:
    """A coordinator that has let the agent in."""

    coordinator: Address
    control: MessageConnection
    network: Network
    welcome: HostWelcome


def _refuse_foreign(interface: str) -> None:
    try:
        Network(b"", "", interface).listen("")[0].close()
    except OSError as error:
        raise ConfigurationError(
            f"--address: workers cannot listen at {interface}: {error}; give an address of this host"
        ) from error


def _meet(
    coordinators: Sequence[Address],
    credentials: Callable[[], Credentials],
    folder: str,
    slots: int,
    interface: str | None,
    wait_s: float | None,
    say: Callable[[str], None],
) -> _Met:
    patience_s = _PATIENCE_S if wait_s is None else wait_s
    deadline = time.monotonic() + patience_s
    said = ""
    while True:
        failed: Exception
        try:
            return _join_any(coordinators, credentials(), folder, slots, interface)
        except FileNotFoundError as error:
            failed = error
            told = f"--credentials: {error}; the job writes this file once it listens"
            if wait_s is None:
                advice = "start it first, or give --wait 5min"
                raise ConfigurationError(f"{told}: {advice}") from error
        except NoCoordinatorError as error:
            failed, told = error, str(error)
        if time.monotonic() > deadline:
            raise NoCoordinatorError(told) from failed
        if told != said:
            said = told
            say(f"{told}; tries again for {patience_s:g} s in all")
        time.sleep(_RETRY_S)


def _join_any(
    coordinators: Sequence[Address],
    known: Credentials,
    folder: str,
    slots: int,
    interface: str | None,
) -> _Met:
    """Raises NoCoordinatorError if none of them is that of the job."""
    why = []
    for coordinator in coordinators:
        try:
            return _join(coordinator, known, folder, slots, interface)
        except (OSError, EOFError, WorkerLostError) as error:
            # Somebody else may listen there until the job does, or these be of an earlier one.
            told = f"{str(error) or 'it was gone before it has answered'}{_hint(error)}"
            why.append(f"no coordinator of that job at {shown(coordinator)}: {told}")
    raise NoCoordinatorError("; ".join(why))


def _join(
    coordinator: Address, known: Credentials, folder: str, slots: int, interface: str | None
) -> _Met:
    """Raises OSError, EOFError or WorkerLostError if the coordinator is not there."""
    control = connect_to(coordinator, Network(known.token, folder, certificate=known.certificate))
    try:
        own = interface or control.own_address
        control.send(HostHello.of_this_host(slots, own).plain())
        welcome = _answer(control)
        refuse_if_told(welcome)
        assert isinstance(welcome, HostWelcome)
    except BaseException:
        control.close()
        raise
    network = Network(known.token, folder, own, welcome.certificate, welcome.compress)
    return _Met(coordinator, control, network, welcome)


def _answer(control: MessageConnection) -> object:
    """The first message. A coordinator that has just frozen must not keep the agent from another one."""
    deadline, waiting = time.monotonic() + _ANSWER_S_MAX, list[Any]([control])
    while not (messages := control.arrived()):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"it has not answered within {_ANSWER_S_MAX:g} s")
        wait(waiting, left_s)
    return messages[0]


def _hint(error: Exception) -> str:
    """Whoever listens there is not the coordinator of these credentials."""
    stranger = isinstance(error, WorkerLostError) or type(error) is ConnectionError
    return "; are these the credentials of an earlier run?" if stranger else ""


def _serve(met: _Met) -> JobOver | None:
    """What the coordinator has said of the end of the job, when it is gone."""
    control, welcome = met.control, met.welcome
    start = TemplateStart(
        met.coordinator, met.network, sys.path, welcome.protocols, welcome.package
    )
    set_up(start)
    try:
        package = load(start)
        _prove_storage(package, welcome)
        template = Template(start, package, control, threads_of_job())
    except MinirtError as error:
        control.send(portable(error))
        raise
    except Exception as error:
        control.send(portable(error))
        raise ConfigurationError(
            f"this host cannot load the job: {type(error).__name__}: {error}; install here what the job "
            "imports, or name its folder in PYTHONPATH"
        ) from error
    options = package.options
    template.run(Beats(options.limits.heartbeat_s, options.heartbeat_timeout_s))
    return template.last_word


def _prove_storage(package: JobPackage, welcome: HostWelcome) -> None:
    """Raises ConfigurationError unless this host reads in the storage what the program has written."""
    if package.storage is None or welcome.probe is None or welcome.answer is None:
        return
    store, probe = package.storage.store, welcome.probe
    try:
        found = store.read(probe.path)
    except StorageError as error:
        found, cause = b"", f" ({error})"
    else:
        cause = ""
    if found != probe.content:
        raise ConfigurationError(
            f"host {os.uname().nodename} does not see in {store.root} what the job's program has stored "
            f"there{cause}; checkpoints need a folder that all hosts share, or a URL such as s3://"
        )
    store.write(welcome.answer.path, welcome.answer.content)
