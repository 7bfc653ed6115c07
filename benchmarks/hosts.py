"""What distance costs: `python -m benchmarks.hosts`. Hosts are network namespaces of this machine.

For each round trip, a job runs on two hosts, with a coordinator on a third one. Behind a slow function:
durations of unaligned checkpoints and what they hold. Then sums by key in columns, which go between the
hosts, on one host and on two, with TLS and without: records per CPU second of agents and workers. What the
process takes that carries the packets counts nowhere.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import minirt as rt
from benchmarks.distance import DistantHosts, Link
from benchmarks.jobs import start
from benchmarks.measure import Checkpoints, milliseconds, print_rows
from benchmarks.workload import Work
from minirt.laboratory.processes import ProcessTree
from minirt.protocol.job_events import ENDED

_MEGABYTE = 1_000_000
_LOOK_S = 0.05


@dataclass(frozen=True)
class DistantCluster(rt.HostCluster):
    """Starts an agent for each of `slots`: a host, and how many slots it has there."""

    listen: str = ""
    hosts: DistantHosts | None = None
    slots: tuple[tuple[int, int], ...] = ()

    def launch(self, invitation: rt.Invitation) -> Agents:
        assert self.hosts is not None
        return Agents(self.hosts, self.slots, invitation)


class Agents:
    """The processes of the hosts."""

    how = "the benchmark starts agents"

    def __init__(
        self, hosts: DistantHosts, slots: Sequence[tuple[int, int]], invitation: rt.Invitation
    ) -> None:
        environ = {**os.environ, "MINIRT_CREDENTIALS": invitation.credentials}
        environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        agent = [sys.executable, "-m", "minirt", "host", "--coordinator", invitation.coordinator]
        self.processes = [
            subprocess.Popen(
                [*hosts.prefix(host), *agent, "--slots", str(count)],
                env=environ,
                stdout=subprocess.DEVNULL,  # Workers say there when their sources begin.
            )
            for host, count in slots
        ]
        _started.append(self)

    def failure(self) -> str | None:
        return None

    def close(self) -> None:
        """They end with the job."""


_started: list[Agents] = []

_TOGETHER, _APART = ((1, 2),), ((1, 1), (2, 1))
SUMS = (
    (_TOGETHER, False, None),
    (_APART, False, None),
    (_APART, True, None),
    (_APART, False, "lz4"),
)
"""Slots of hosts, TLS and compression."""


def numbered(number: int) -> tuple[int, int]:
    return number % 100, number


class Slow:
    """Takes so long for each record."""

    def __init__(self, record_s: float) -> None:
        self._record_s = record_s

    def __call__(self, record: tuple[int, int]) -> tuple[int, int]:
        time.sleep(self._record_s)
        return record


def measured(hosts: DistantHosts, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row of each job."""
    options = sized(asked)
    yield {"mode": asked.mode, **checkpoints(hosts, asked.mode, asked.seconds, options)}
    for slots, tls, compression in SUMS if asked.records else ():
        network = {"tls": tls, "compression": compression}
        sum_of = sums(hosts, slots, asked.records, options, **network)
        yield {"hosts": len(slots), **network, **sum_of}


def sized(asked: argparse.Namespace) -> rt.Options:
    """With queues of the size that was asked for."""
    limits = rt.Limits()
    if asked.queue_kb is not None:
        size = asked.queue_kb * 1024
        limits = replace(limits, input_queue_bytes=size, row_input_queue_bytes=size)
    return rt.Options(debloat=asked.debloat, limits=limits)


def checkpoints(
    hosts: DistantHosts, mode: str, seconds: float, options: rt.Options
) -> dict[str, Any]:
    """Of a job that is held up behind the hop between the hosts."""
    env = rt.Environment("distance", parallelism=2)
    rows = env.source(rt.SequenceSource.endless(), uid="numbers").map(numbered)
    slow = rows.key_by(lambda pair: pair[0]).map(Slow(0.001), uid="slow")
    slow.key_by(lambda pair: pair[1] % 7).sink(rt.DiscardSink(), uid="out")
    noted = Checkpoints()
    with tempfile.TemporaryDirectory() as storage:
        job = env.start(
            checkpointing=rt.Checkpointing(storage, interval="500ms", mode=mode),
            options=replace(options, placement="slots"),
            observer=noted,
            cluster=DistantCluster(f"{hosts.address(0)}:0", hosts=hosts, slots=((1, 1), (2, 1))),
        )
        with ended(job):
            _runs(job)
            time.sleep(seconds)
    taken = noted.completed[2:]  # Queues fill up before.
    return {
        "checkpoints": len(taken),
        "checkpoint_ms": milliseconds(report.duration_s for report in taken),
        "in_flight_kb": max((report.in_flight_bytes for report in taken), default=0) / 1000,
    }


def sums(
    hosts: DistantHosts,
    slots: Sequence[tuple[int, int]],
    records: int,
    options: rt.Options,
    **network: Any,
) -> dict[str, Any]:
    """Rate of sums by key, by the clock and by CPU time, and what went between the hosts."""
    with tempfile.TemporaryDirectory() as storage:
        work = Work("keyed-sum", records, storage=storage)
        cluster = DistantCluster(
            f"{hosts.address(0)}:0", hosts=hosts, slots=tuple(slots), **network
        )
        before = _received(hosts)
        job, _ = start(work, replace(options, placement="slots"), cluster)
        with ended(job):
            _runs(job)
            trees = [ProcessTree(process.pid) for process in _started[-1].processes]
            for tree in trees:
                tree.look()
            before_s, began_at = sum(tree.cpu_s for tree in trees), time.monotonic()
            while job.status not in ENDED:
                for tree in trees:
                    tree.look()
                time.sleep(_LOOK_S)
            took_s = time.monotonic() - began_at
    cpu_s = sum(tree.cpu_s for tree in trees) - before_s
    return {
        "m_records_per_s": records / took_s / 1e6,
        # A job may be over before its processes were looked at a second time.
        "m_records_per_cpu_s": records / cpu_s / 1e6 if cpu_s else None,
        "megabytes": (_received(hosts) - before) / _MEGABYTE,
    }


def _received(hosts: DistantHosts) -> int:
    return sum(map(hosts.received_bytes, range(1, len(hosts.names))))


@contextmanager
def ended(job: rt.Job) -> Iterator[None]:
    """Of the job and its agents nothing is left behind."""
    try:
        yield
    finally:
        job.cancel()
        for process in _started.pop().processes:
            process.wait()


def _runs(job: rt.Job) -> None:
    while job.status is not rt.JobStatus.RUNNING:
        if job.status in ENDED:
            job.wait()
        time.sleep(_LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0, 1, 50])
    parser.add_argument("--jitter-ms", type=float, default=0, help="on each way, at most")
    parser.add_argument("--megabytes-per-s", type=float, help="of each link; else what goes")
    parser.add_argument("--queue-kb", type=int, help="of each channel, Limits.input_queue_bytes")
    parser.add_argument("--debloat", help="of all jobs, Options.debloat, such as 500ms")
    parser.add_argument("--mode", default="unaligned")
    parser.add_argument("--seconds", type=float, default=15, help="of each job with checkpoints")
    parser.add_argument("--records", type=int, default=20_000_000, help="of each sum; 0 for none")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # And clean up.
    bandwidth = None if asked.megabytes_per_s is None else asked.megabytes_per_s * _MEGABYTE
    rows = []
    for rtt_ms in asked.rtt_ms:
        hosts = DistantHosts(3, Link(rtt_ms / 2000, asked.jitter_ms / 1000, bandwidth))
        try:
            for row in measured(hosts, asked):
                rows.append({"rtt_ms": rtt_ms, **row})
                if asked.json is None:
                    print_rows(rows[-1:], None)
        finally:
            hosts.close()
    if asked.json is not None:
        print_rows(rows, asked.json)


if __name__ == "__main__":
    main()
