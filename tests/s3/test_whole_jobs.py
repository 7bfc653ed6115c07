"""Whole jobs on S3: workers are killed, storage fails below s3fs; nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import pytest

import minirt as rt
from tests.campaigns import soaked
from tests.runtime.processes import needs_proc, send, workers
from tests.s3.endpoint import Endpoint
from tests.s3.jobs import IMPATIENT, check_output, environment, write_input
from tests.s3.proxy import Fault, FaultyProxy, Request
from tests.watch import Watch

TRANSIENT = (
    Fault.UNAVAILABLE,
    Fault.INTERNAL_ERROR,
    Fault.RESET,
    Fault.TORN,
    Fault.LOST_ANSWER,
    Fault.SLOW,
)


@pytest.mark.processes
@needs_proc
def test_a_job_whose_workers_are_killed_puts_out_everything_exactly_once(
    endpoint: Endpoint, prefix: str
) -> None:
    write_input(endpoint, prefix)
    chosen = random.Random(1)

    def kill() -> None:
        assert send(chosen.choice(workers()), signal.SIGKILL)

    watch = Watch({("completed", 1): kill, ("completed", 2): kill})
    result = environment(prefix, endpoint.options, parallelism=2, min_pause="100ms").execute(
        observer=watch
    )
    assert result.status is rt.JobStatus.FINISHED
    assert result.restarts >= 2
    check_output(endpoint, prefix)
    files = endpoint.filesystem()
    for path in files.find(prefix):
        assert "/_minirt/" not in path
        assert endpoint.secret.encode() not in files.cat_file(path), path


@pytest.mark.processes
@needs_proc
@pytest.mark.parametrize("copies_bytes", [1 << 30, *soaked(0)])
def test_a_restart_reads_what_its_host_has_stored_from_local_copies(
    copies_bytes: int, endpoint: Endpoint, prefix: str, proxy: FaultyProxy
) -> None:
    write_input(endpoint, prefix)
    read: list[str] = []
    written: list[str] = []

    def plan(request: Request) -> Fault | None:
        if not request.lists and "/checkpoints/chk-" in request.key:
            {"GET": read, "PUT": written}.get(request.method, []).append(request.key)
        return None

    def kill() -> None:
        proxy.plan = plan
        assert send(workers()[0], signal.SIGKILL)

    limits = rt.Limits(inline_snapshot_bytes=0, local_copies_bytes=copies_bytes)
    env = environment(prefix, endpoint.at(proxy.url).options, parallelism=2)
    result = env.execute(
        observer=Watch({("completed", 1): kill}), options=rt.Options(limits=limits)
    )
    assert result.restarts >= 1
    assert written, "the proxy sees the files of checkpoints"
    assert bool(read) == (copies_bytes == 0), read
    check_output(endpoint, prefix)


class Disturbance:
    """Breaks requests at random from the first checkpoint on, until so many are broken."""

    def __init__(self, proxy: FaultyProxy, seed: int, most: int) -> None:
        self._proxy = proxy
        self._random = random.Random(seed)
        self._most = most
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._proxy.plan = self._choose

    def _choose(self, request: Request) -> Fault | None:
        with self._lock:
            if len(self._proxy.faults) >= self._most or self._random.random() > 0.4:
                return None
            return self._random.choice(TRANSIENT)


def test_requests_that_break_at_random_cost_checkpoints_and_restarts_but_no_record(
    endpoint: Endpoint, prefix: str, proxy: FaultyProxy
) -> None:
    write_input(endpoint, prefix)
    disturbance = Disturbance(proxy, seed=1, most=30)
    watch = Watch({("completed", 1): disturbance.begin})
    options = {**endpoint.at(proxy.url).options, **IMPATIENT}
    env = environment(prefix, options, tolerable_failures=1000)
    result = env.execute(observer=watch, runner="inline")
    assert result.status is rt.JobStatus.FINISHED
    assert len(proxy.faults) >= 5
    check_output(endpoint, prefix)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, *soaked(Fault.UNAVAILABLE)])
def test_checkpoints_fail_while_writes_do_and_the_job_goes_on(
    fault: Fault, endpoint: Endpoint, prefix: str, proxy: FaultyProxy
) -> None:
    write_input(endpoint, prefix)

    def begin() -> None:
        proxy.plan = lambda request: (
            fault if request.method == "PUT" and "/checkpoints/" in request.key else None
        )

    def end() -> None:
        proxy.plan = lambda request: None

    watch = Watch({("completed", 1): begin, ("failed", 1): end})
    options = {**endpoint.at(proxy.url).options, **IMPATIENT}
    result = environment(prefix, options).execute(observer=watch, runner="inline")
    assert watch.seen["failed"] >= 1
    assert watch.seen["completed"] >= 2
    assert result.restarts == 0
    check_output(endpoint, prefix)


def test_a_restart_finds_the_newest_checkpoint_although_listings_lag(
    endpoint: Endpoint, prefix: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    write_input(endpoint, prefix)
    proxy.plan = lambda request: Fault.LAGGING if request.lists else None
    crash = tmp_path / "crash"
    watch = Watch({("completed", 2): crash.touch})
    options = {**endpoint.at(proxy.url).options, **IMPATIENT}
    env = environment(prefix, options, crash)
    result = env.execute(observer=watch, runner="inline")
    assert result.restarts == 1
    check_output(endpoint, prefix)
