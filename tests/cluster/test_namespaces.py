"""Several hosts on one machine: network namespaces with addresses of their own, joined by a bridge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import minirt as rt
from benchmarks.distance import ip
from tests.campaigns import soaked
from tests.cluster.agents import Agent, PlayedCluster, agents_of
from tests.cluster.asked import AFTERWARDS, TOKEN, Asked, free_port
from tests.cluster.test_agents import finishes, running, start
from tests.runtime.processes import is_alive, needs_proc, send, wait_until

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, pytest.mark.hosts, needs_proc]


class Hosts:
    """Host 0 is where the test runs; the others are namespaces. All have addresses of one network."""

    def __init__(self, count: int) -> None:
        self._id = os.getpid() % 10_000
        self._net = f"10.{200 + self._id % 50}.{self._id // 50 % 250}"
        self._bridge = f"mrt{self._id}"
        self.names = [f"mrt{self._id}-{n}" for n in range(1, count + 1)]
        self.address = f"{self._net}.254"
        ip("link", "add", self._bridge, "type", "bridge")
        ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for number, name in enumerate(self.names, 1):
            ip("netns", "add", name)
            ip("link", "add", self._link(number), "type", "veth", "peer", "eth0", "netns", name)
            ip("link", "set", self._link(number), "master", self._bridge, "up")
            ip("-n", name, "address", "add", f"{self.address_of(number)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")

    def prefix(self, number: int) -> tuple[str, ...]:
        """What runs a command on a host."""
        return ("ip", "netns", "exec", self.names[number - 1])

    def address_of(self, number: int) -> str:
        return f"{self._net}.{number}"

    def cut_off(self, number: int) -> None:
        ip("link", "set", self._link(number), "down")

    def join_again(self, number: int) -> None:
        ip("link", "set", self._link(number), "up")

    def mute(self, number: int) -> None:
        """What it sends to the coordinator is lost; it still hears."""
        ip("-n", self.names[number - 1], "route", "add", "blackhole", f"{self.address}/32")

    def unmute(self, number: int) -> None:
        ip("-n", self.names[number - 1], "route", "del", "blackhole", f"{self.address}/32")

    def close(self) -> None:
        for name in self.names:
            ip("netns", "delete", name)
        ip("link", "delete", self._bridge)

    def _link(self, number: int) -> str:
        return f"{self._bridge}-{number}"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        hosts = Hosts(3)
    except OSError as error:
        pytest.skip(f"network namespaces are not allowed: {error}")
    yield hosts
    hosts.close()


@pytest.mark.parametrize("mode", ["unaligned", *soaked("aligned")])
def test_a_host_that_is_lost_is_replaced_by_another_one(
    hosts: Hosts, tmp_path: Path, mode: str
) -> None:
    job = start(tmp_path, PlayedCluster(listen=f"{hosts.address}:0"), mode=mode)
    with agents_of(job) as agents:
        for number in (1, 2, 3):
            agents.add(1, prefix=hosts.prefix(number))
        running(job)
        time.sleep(0.3)
        busy = next(agent for agent in agents.all if agent.workers)
        for pid in [busy.pid, *busy.workers]:
            send(pid, signal.SIGKILL)  # Workers may notice first.
        assert finishes(job, tmp_path).restarts >= 1


@pytest.mark.parametrize("way", ["both ways", "one way"])
def test_a_host_that_is_cut_off_ends_its_workers_and_comes_back(
    hosts: Hosts, tmp_path: Path, way: str
) -> None:
    cut_off, join = (
        (hosts.cut_off, hosts.join_again) if way == "both ways" else (hosts.mute, hosts.unmute)
    )
    cluster = PlayedCluster(listen=f"{hosts.address}:0")
    job = start(tmp_path, cluster, mode="unaligned", heartbeat_timeout="2s", case="reduced")
    with agents_of(job) as agents:
        for number in (1, 2, 3):
            agents.add(1, prefix=hosts.prefix(number))
        running(job)
        time.sleep(0.3)
        number, cut = next((n, agent) for n, agent in enumerate(agents.all, 1) if agent.workers)
        zombies = cut.workers
        cut_off(number)
        try:
            wait_until(lambda: job.restarts >= 1, "its generation fails")
            # Its agent hears nothing of the coordinator either.
            wait_until(lambda: not any(is_alive(pid) for pid in zombies), "zombies end", 60)
            running(job)
        finally:
            join(number)
        finishes(job, tmp_path, "reduced")


def test_a_job_is_asked_from_another_host_by_its_url(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    cluster = PlayedCluster(listen=f"{hosts.address}:0")
    job = start(tmp_path, cluster, count=100_000, interval="200ms", control=f"{hosts.address}:0")
    assert job.control_url is not None

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*hosts.prefix(3), sys.executable, "-m", "minirt", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=90)

    with agents_of(job) as agents:
        for number in (1, 2):
            agents.add(1, prefix=hosts.prefix(number))
        running(job)
        [told] = json.loads(called("jobs", job.control_url, "--json").stdout)
        assert (told["name"], told["status"]) == (job.name, "running")
        hosts.cut_off(3)
        try:
            unreachable = called("savepoint", job.control_url, str(tmp_path / "never"))
        finally:
            hosts.join_again(3)
        assert unreachable.returncode == 1
        assert "cannot be reached" in unreachable.stderr
        assert unreachable.stderr.count("\n") == 1
        stopped = called("stop", job.control_url, "--savepoint", str(tmp_path / "taken"))
        assert (stopped.returncode, stopped.stderr) == (0, "")
        assert (tmp_path / "taken").is_dir()
        assert job.wait(30).restarts == 0


def test_a_job_on_hosts_is_rescaled_from_another_host_and_its_agents_stay(
    hosts: Hosts, tmp_path: Path
) -> None:
    listen, credentials = f"{hosts.address}:{free_port(hosts.address)}", str(tmp_path / "key")
    cluster = f"rt.HostCluster({listen!r}, credentials={credentials!r})"
    asked = Asked(tmp_path, cluster, host=hosts.address, prefix=hosts.prefix(3))
    said = tmp_path / "said"
    with said.open("w") as errors:
        program = subprocess.Popen(
            [sys.executable, "-m", "minirt", "run", str(asked.file)],
            stderr=errors,
            env={**os.environ, "MINIRT_TOKEN": TOKEN},
        )
    invitation = rt.Invitation("asked", listen, "", AFTERWARDS)
    options = ("--credentials", credentials)
    agents = [
        Agent(invitation, slots, prefix=hosts.prefix(number), options=options)
        for number, slots in ((1, 1), (2, 1))
    ]
    try:
        asked.rescale()
        assert program.wait(90) == 0, said.read_text()
        assert [agent.wait() for agent in agents] == [0, 0]
        assert [agent.said().count("looks for the program") for agent in agents] == [1, 1]
    finally:
        program.kill()
        program.wait()
        for agent in agents:
            agent.kill()
    asked.has_each_record_once()


def test_a_local_folder_of_each_host_is_refused_in_one_line(hosts: Hosts, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed")
    own = tmp_path / "checkpoints"
    job = start(tmp_path, PlayedCluster(listen=f"{hosts.address}:0"))
    with agents_of(job) as agents:
        hidden = f'mount -t tmpfs none {own} && exec "$@"'
        agents.add(2, prefix=(*hosts.prefix(1), "unshare", "--mount", "sh", "-c", hidden, "sh"))
        with pytest.raises(rt.ConfigurationError) as failed:
            job.wait(60)
        assert f"does not see in {own} what the job's program has stored there" in str(failed.value)
        assert agents.all[0].wait() == 2
        said = agents.all[0].said()
        assert said.count("does not see") == 1


def test_hosts_that_could_not_call_each_other_are_refused(hosts: Hosts, tmp_path: Path) -> None:
    job = start(tmp_path, PlayedCluster(listen="0.0.0.0:0"))
    with agents_of(job) as agents:
        port = agents.invitation.coordinator.split(":")[1]
        there = []
        for address, prefix in (("127.0.0.1", ()), (hosts.address, hosts.prefix(1))):
            invitation = rt.Invitation("job", f"{address}:{port}", agents.invitation.credentials, 1)
            there.append(Agent(invitation, 1, prefix=prefix))
        agents.all += there
        wait_until(lambda: any(agent.status == 2 for agent in there), "one is refused", 60)
        [refused] = [agent.said() for agent in there if agent.status == 2]
        assert refused.count("could not reach each other; give --address") == 1
