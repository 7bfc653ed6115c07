"""Hosts that are far from each other: round trips, jitter and narrow links."""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import minirt as rt
from benchmarks.distance import Direction, DistantHosts, Link
from tests.campaigns import soaked
from tests.cluster.agents import Agents, PlayedCluster, agents_of
from tests.cluster.test_agents import finishes, running, start
from tests.needs import ROOT
from tests.runtime.processes import needs_proc, send

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, pytest.mark.hosts, needs_proc]


@contextlib.contextmanager
def hosts_at(link: Link) -> Iterator[DistantHosts]:
    """Three; the first one is where the test and the coordinator run."""
    try:
        hosts = DistantHosts(3, link)
    except OSError as error:
        pytest.skip(f"network namespaces or TUN devices are not allowed: {error}")
    try:
        yield hosts
    finally:
        hosts.close()


def add_agents(agents: Agents, hosts: DistantHosts) -> None:
    for number in (1, 2):
        agents.add(1, prefix=hosts.prefix(number))


@pytest.mark.parametrize("mode", ["unaligned", "uncoordinated", *soaked("aligned")])
def test_a_worker_that_is_killed_far_away_costs_no_record(tmp_path: Path, mode: str) -> None:
    with hosts_at(Link(delay_s=0.02, jitter_s=0.02)) as hosts:
        cluster = PlayedCluster(listen=f"{hosts.address(0)}:0")
        job = start(tmp_path, cluster, mode=mode, case="connected")
        with agents_of(job) as agents:
            add_agents(agents, hosts)
            running(job)
            time.sleep(0.5)
            send(agents.all[0].workers[0], signal.SIGKILL)
            assert finishes(job, tmp_path, "connected").restarts >= 1


def test_data_on_a_narrow_link_makes_nobody_look_dead(tmp_path: Path) -> None:
    with hosts_at(Link(delay_s=0.005, bytes_per_s=100_000)) as hosts:
        cluster = PlayedCluster(listen=f"{hosts.address(0)}:0")
        options = {"heartbeat_timeout": "4s", "per_second": 1e9, "count": 30_000}
        job = start(tmp_path, cluster, mode="unaligned", **options)
        with agents_of(job) as agents:
            add_agents(agents, hosts)
            assert finishes(job, tmp_path, count=30_000).restarts == 0


@pytest.mark.parametrize("tls", [True, *soaked(False)])
def test_data_that_is_compressed_takes_fewer_bytes_between_hosts(tmp_path: Path, tls: bool) -> None:
    came: list[int] = []
    for compression in (None, "lz4"):
        folder = tmp_path / str(compression)
        folder.mkdir()
        with hosts_at(Link()) as hosts:
            listen = f"{hosts.address(0)}:0"
            cluster = PlayedCluster(listen=listen, compression=compression, tls=tls)
            # What is said of checkpoints is hardly compressed.
            job = start(folder, cluster, count=15_000, per_second=1e9, interval="1s")
            with agents_of(job) as agents:
                add_agents(agents, hosts)
                finishes(job, folder, count=15_000)
                came.append(sum(map(hosts.received_bytes, (1, 2))))
    assert came[1] < 0.8 * came[0], came


def test_an_unaligned_checkpoint_takes_a_few_round_trips(tmp_path: Path) -> None:
    """However much waits in front of a slow function."""
    round_trip_s = 0.2
    with hosts_at(Link(delay_s=round_trip_s / 2)) as hosts:
        env = rt.Environment("slow", parallelism=2)
        rows = env.source(rt.SequenceSource.endless(), uid="numbers")
        rows.key_by(_hundredth).map(_slowly, uid="slow").key_by(_hundredth).sink(rt.DiscardSink())
        noted: list[float] = []

        class Noting(rt.JobObserver):
            def on_checkpoint(self, report: rt.CheckpointReport) -> None:
                if report.completed:
                    noted.append(report.duration_s)

        job = env.start(
            checkpointing=rt.Checkpointing(tmp_path / "chk", interval="100ms", mode="unaligned"),
            options=rt.Options(placement="slots"),
            observer=Noting(),
            cluster=PlayedCluster(listen=f"{hosts.address(0)}:0"),
        )
        with agents_of(job) as agents:
            add_agents(agents, hosts)
            running(job)
            deadline = time.monotonic() + 60
            while len(noted) < 8 and time.monotonic() < deadline:
                time.sleep(0.1)
    assert statistics.median(noted[2:]) < 4 * round_trip_s


def test_packets_arrive_late_and_in_order_and_a_full_link_drops_some() -> None:
    far = Direction(Link(delay_s=0.1, jitter_s=0.05), Random(0))
    for n in range(50):
        far.take(bytes([n]), now=n / 1000)
    assert far.arrived(0.0999) == []
    arrived = [(at, one) for at in (0.145, 0.16, 0.25) for one in far.arrived(at)]
    assert [one for _, one in arrived] == [bytes([n]) for n in range(50)]
    assert {at for at, _ in arrived} == {0.145, 0.16, 0.25}
    narrow = Direction(Link(bytes_per_s=1e6), Random(0))
    for _ in range(10):
        narrow.take(bytes(60_000), now=0.0)
    assert len(narrow.arrived(0.0599)) == 0
    assert len(narrow.arrived(10)) == 4


def _hundredth(number: int) -> int:
    return number % 100


def _slowly(number: int) -> int:
    time.sleep(0.001)
    return number


@pytest.mark.soak
def test_the_benchmark_has_a_row_for_each_job(tmp_path: Path) -> None:
    with hosts_at(Link()):
        pass  # Else it is skipped.
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.hosts", "--rtt-ms", "20", "--seconds", "3"]
    command += ["--records", "100000", "--queue-kb", "1024", "--json", str(report)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=200, capture_output=True)
    slow, *sums = json.loads(report.read_text())["rows"]
    assert slow["checkpoint_ms"]["p50"] > 20
    assert [(row["hosts"], row["tls"], row["compression"]) for row in sums] == [
        *((1, False, None), (2, False, None), (2, True, None), (2, False, "lz4"))
    ]
    together, apart, _, packed = (row["megabytes"] for row in sums)
    assert together < packed < apart
