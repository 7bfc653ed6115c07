"""The host agent, `minirt host`: a template that somebody else has started, for a job of another host."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable

from minirt.errors import ConfigurationError, MinirtError, StorageError, WorkerLostError
from minirt.runtime.channels.network import Address, Network, shown
from minirt.runtime.control.connection import MessageConnection, connect_to
from minirt.runtime.control.host_hello import (
    Credentials,
    HostHello,
    HostWelcome,
    refuse_if_told,
)
from minirt.runtime.control.messages import portable
from minirt.runtime.control.package import JobPackage
from minirt.runtime.worker.template import (
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


def run_agent(
    coordinator: Address,
    credentials: Callable[[], Credentials],
    slots: int,
    interface: str | None,
    wait_s: float | None,
    say: Callable[[str], None],
) -> None:
    """Join the job whose coordinator listens there, and serve it until the coordinator is gone.

    `credentials` is asked before each attempt, and raises FileNotFoundError as long as there are none.
    With `wait_s` the agent may start before the job: it says why it waits, for at most so many seconds.
    Without, there must be credentials. Workers listen at the address `interface` of this host; by default
    it is the one from which this host reaches the coordinator. Raises ConfigurationError for an address
    that this host does not have, for missing credentials, and if the job refuses this host; MinirtError
    if there is no coordinator in time.
    """
    signal.signal(signal.SIGTERM, end_orderly)
    if interface is not None:
        _refuse_foreign(interface)
    folder = tempfile.mkdtemp(prefix="minirt-")
    try:
        control, known = _meet(coordinator, credentials, folder, wait_s, say)
        own = interface or control.own_address
        control.send(HostHello.of_this_host(slots, own).plain())
        try:
            welcome = control.receive()
        except (EOFError, OSError):
            raise MinirtError("the coordinator was gone before it has answered") from None
        refuse_if_told(welcome)
        assert isinstance(welcome, HostWelcome)
        network = Network(known.token, folder, own, welcome.certificate)
        _serve(coordinator, network, welcome, control)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_foreign(interface: str) -> None:
    try:
        Network(b"", "", interface).listen("")[0].close()
    except OSError as error:
        raise ConfigurationError(
            f"--address: workers cannot listen at {interface}: {error}; give an address of this host"
        ) from error


def _meet(
    coordinator: Address,
    credentials: Callable[[], Credentials],
    folder: str,
    wait_s: float | None,
    say: Callable[[str], None],
) -> tuple[MessageConnection, Credentials]:
    patience_s = _PATIENCE_S if wait_s is None else wait_s
    deadline = time.monotonic() + patience_s
    said = ""
    while True:
        missing = True
        try:
            known = credentials()
            missing = False
            network = Network(known.token, folder, certificate=known.certificate)
            return connect_to(coordinator, network), known
        except (OSError, WorkerLostError) as error:
            # Somebody else may listen there until the job does, or the credentials be of an earlier one.
            if missing:
                why = f"--credentials: {error}; the job writes this file once it listens"
                if wait_s is None:
                    advice = "start it first, or give --wait 5min"
                    raise ConfigurationError(f"{why}: {advice}") from error
            else:
                why = f"no coordinator of that job at {shown(coordinator)}: {error}{_hint(error)}"
            if time.monotonic() > deadline:
                raise MinirtError(why) from error
            if why != said:
                said = why
                say(f"{why}; tries again for {patience_s:g} s in all")
        time.sleep(_RETRY_S)


def _hint(error: Exception) -> str:
    """Whoever listens there is not the coordinator of these credentials."""
    stranger = isinstance(error, WorkerLostError) or type(error) is ConnectionError
    return "; are these the credentials of an earlier run?" if stranger else ""


def _serve(
    coordinator: Address, network: Network, welcome: HostWelcome, control: MessageConnection
) -> None:
    start = TemplateStart(coordinator, network, sys.path, welcome.protocols, welcome.package)
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
    template.run(package.options.limits.heartbeat_s)


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
