"""The launcher of jobs on several hosts: it invites agents, and examines those that come."""

from __future__ import annotations

import ipaddress
import pickle
import secrets
from dataclasses import dataclass
from typing import Any

from minirt.clusters import HostCluster, Invitation, parse_address
from minirt.errors import ConfigurationError, MinirtError, StorageError, WorkerLostError
from minirt.filesystems import Protocols
from minirt.runtime.cluster.launching import LaunchFailed
from minirt.runtime.control.host_hello import Credentials, HostHello, HostWelcome, Probe
from minirt.runtime.control.package import JobPackage
from minirt.runtime.network.sockets import Address, Network, reachable, shown
from minirt.runtime.network.tls import Certificate
from minirt.storage.checkpoints import CheckpointStorage
from minirt.units import seconds

_PROBES = "probes"
_PROBE_BYTES = 32


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """A job runs on the hosts of a `HostCluster`."""

    cluster: HostCluster

    @property
    def wait_s(self) -> float:
        return seconds(self.cluster.wait)

    @property
    def slots_min(self) -> int | None:
        least = self.cluster.min_slots
        return 1 if least is None and self.follows_slots else least

    @property
    def follows_slots(self) -> bool:
        return self.cluster.reactive is not None

    def network(self, token: bytes, folder: str, transport: str) -> tuple[Network, int]:
        host, port = parse_address(self.cluster.listen, "listen")
        certificate = Certificate.make() if self.cluster.tls else None
        compress = self.cluster.compression is not None
        return Network(token, folder, host, certificate, compress), port

    def start(
        self, package: JobPackage, network: Network, address: Address, slots: int
    ) -> HostLauncher:
        """Raises MinirtError if the storage cannot be written, or agents cannot be started."""
        least = self.cluster.min_slots
        if least is not None and least > slots:
            raise ConfigurationError(
                f"{type(self.cluster).__name__}: min_slots={least} is more than the job needs: {slots}"
            )
        probe = None if package.storage is None else _store_probe(package.storage)
        launcher = HostLauncher(package, network, probe)
        credentials = Credentials(network.token, network.certificate).text()
        job = package.load_graph().name
        invitation = Invitation(job, shown(reachable(address)), credentials, slots)
        launcher.launched = self.cluster.launch(invitation)
        return launcher


class HostLauncher:
    """A `Launcher`. What was started in `launch` starts lost agents anew, if anything does."""

    def __init__(self, package: JobPackage, network: Network, probe: Probe | None) -> None:
        self._storage = package.storage
        self._network = network
        self._protocols = Protocols.of_this_process()
        self._package = pickle.dumps(package)
        self._probe = probe
        self._addresses: set[str] = set()
        """Where workers listen."""
        self.launched: Any = None

    def failure(self) -> LaunchFailed | None:
        why = self.launched.failure()
        return None if why is None else LaunchFailed(WorkerLostError(why), fatal=True)

    def on_lost(self) -> str:
        return "has lost its connection to the coordinator, and its workers with it"

    def welcome(self, said: dict[str, Any]) -> tuple[HostHello, HostWelcome]:
        hello = HostHello.from_plain(said)
        wrong = hello.mismatch() or self._unreachable(hello)
        if wrong is not None:
            raise ConfigurationError(wrong)
        self._addresses.add(hello.address)
        answer = None
        if self._probe is not None:
            name = f"{_PROBES}/host-{secrets.token_hex(8)}"
            answer = Probe(name, secrets.token_bytes(_PROBE_BYTES))
        return hello, HostWelcome(
            self._protocols,
            self._package,
            self._network.certificate,
            self._network.compress,
            self._probe,
            answer,
        )

    def prove(self, welcome: HostWelcome) -> None:
        answer = welcome.answer
        if self._storage is None or answer is None:
            return
        store = self._storage.store
        try:
            seen = store.read(answer.path) == answer.content
            store.delete(answer.path)
        except StorageError:
            seen = False
        if not seen:
            raise ConfigurationError(
                f"the job's program does not see in {store.root} what the host has stored there; "
                "checkpoints need a folder that all hosts share, or a URL such as s3://"
            )

    @property
    def advice(self) -> str:
        return str(self.launched.how)

    def close(self, *, orderly: bool) -> None:
        self.launched.close()
        if self._storage is not None and self._probe is not None:
            try:
                self._storage.store.delete(self._probe.path)
            except MinirtError:
                pass  # It is small, and the next job of this storage removes it.

    def _unreachable(self, hello: HostHello) -> str | None:
        """Workers of all hosts call each other."""
        for other in self._addresses:
            if _is_loopback(other) != _is_loopback(hello.address):
                return (
                    f"its workers would listen at {hello.address} and those of another host at {other}, "
                    "so they could not reach each other; give --address"
                )
        return None


def _store_probe(storage: CheckpointStorage) -> Probe:
    """Raises StorageError."""
    for left in storage.store.list(_PROBES):
        storage.store.delete(left)
    name = f"{_PROBES}/program-{secrets.token_hex(8)}"
    probe = Probe(name, secrets.token_bytes(_PROBE_BYTES))
    storage.store.write(probe.path, probe.content)
    return probe


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
