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
    refused_because,
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


def run_agent(
    coordinator: tuple[str, int],
    credentials: Callable[[], Credentials],
    slots: int,
    interface: str | None,
    wait_s: float,
) -> None:
    """Join the job whose coordinator listens there, and serve it until the coordinator is gone.

    `credentials` is asked before each attempt: the file may be written later than the agent starts. It
    raises OSError as long as there are none. Workers listen at the address `interface` of this host; by
    default it is the one from which this host reaches the coordinator. Raises ConfigurationError if the job
    refuses this host, and MinirtError if there is no coordinator within `wait_s` seconds.
    """
    signal.signal(signal.SIGTERM, end_orderly)
    folder = tempfile.mkdtemp(prefix="minirt-")
    try:
        control, known = _meet(coordinator, credentials, folder, wait_s)
        own = interface or control.own_address
        control.send(HostHello.of_this_host(slots, own).plain())
        try:
            welcome = control.receive()
        except (EOFError, OSError):
            raise MinirtError("the coordinator was gone before it has answered") from None
        refused = refused_because(welcome)
        if refused is not None:
            raise ConfigurationError(f"the job refuses this host: {refused}")
        assert isinstance(welcome, HostWelcome)
        network = Network(known.token, folder, own, welcome.certificate)
        _serve(coordinator, network, welcome, control)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _meet(
    coordinator: Address, credentials: Callable[[], Credentials], folder: str, wait_s: float
) -> tuple[MessageConnection, Credentials]:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            known = credentials()
            network = Network(known.token, folder, certificate=known.certificate)
            return connect_to(coordinator, network), known
        except (OSError, WorkerLostError) as error:
            # Somebody else may listen there until the job does, or the credentials be of an earlier one.
            if time.monotonic() > deadline:
                where = shown(coordinator)
                raise MinirtError(f"no coordinator of that job at {where}: {error}") from error
        time.sleep(_RETRY_S)


def _serve(
    coordinator: Address, network: Network, welcome: HostWelcome, control: MessageConnection
) -> None:
    start = TemplateStart(coordinator, network, sys.path, welcome.protocols, welcome.package)
    set_up(start)
    try:
        package = load(start)
        _prove_storage(package, welcome)
        template = Template(start, package, control, threads_of_job())
    except Exception as error:
        control.send(portable(error))
        raise
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
