"""Standbys as processes: they take over what dies or freezes, one of them, and nothing else."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from minirt.errors import MinirtError
from minirt.operations import port
from minirt.operations.access import ControlUrl, certificate_of
from minirt.operations.exchange import JobHasEndedError
from minirt.operations.running import RemoteJob
from minirt.process_names import has_surely_ended, name_of_this_process
from minirt.protocol.lease import Lease, LeaseTimes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import LeaseReader, write_lease
from tests.operations.standby_job import LEASE_TIMEOUT_S
from tests.operations.standby_place import JOB, Place, watches
from tests.runtime.processes import (
    children,
    is_alive,
    needs_proc,
    send,
    wait_until,
)

pytestmark = [pytest.mark.processes, needs_proc]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place.made(tmp_path) as place:
        yield place


def test_a_job_whose_program_is_killed_goes_on(place: Place) -> None:
    job = place.job()
    place.runs()
    standby = place.standby()
    watches(standby)
    workers = [pid for template in children(job.pid) for pid in children(template)]
    job.process.kill()
    assert standby.ends() == 0
    assert "the job's program has died" in standby.said()
    assert not any(is_alive(pid) for pid in workers)
    place.holds_each_record_once()


def test_a_job_that_ends_in_order_ends_its_standbys(place: Place) -> None:
    job = place.job()
    place.runs()
    standbys = [place.standby(), place.standby()]
    for standby in standbys:
        watches(standby)
    assert job.ends() == 0
    assert [standby.ends() for standby in standbys] == [0, 0]
    assert place.generation == 1
    assert "the job is over: finished" in standbys[0].said()
    place.holds_each_record_once()


TOKEN = "a token of this test, long enough"


def free_address() -> tuple[str, int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        host, number = bound.getsockname()
        return host, number


def remote(address: tuple[str, int]) -> RemoteJob:
    """Whoever answers at that control port."""
    return RemoteJob(ControlUrl(address, certificate_of(TOKEN).fingerprint), TOKEN)


def test_who_takes_over_answers_at_the_same_url(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    address = free_address()
    command = [*JOB, str(place.folder), "--control", "{}:{}".format(*address)]
    asked = remote(address)
    job = place.job(*command[-2:])
    place.runs()
    assert asked.ask({"request": "status"}, 30)["pid"] == job.pid
    standby = place.standby(command=command)
    watches(standby)
    job.process.kill()
    wait_until(lambda: asked.successor() is not None, "the successor answers", 60)
    following = asked.successor()
    assert following is not None
    assert following.ask({"request": "status"}, 30)["pid"] == standby.command
    assert standby.ends() == 0
    place.holds_each_record_once()


def test_one_that_was_frozen_and_replaced_answers_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers have come while it was frozen: the system has taken their connections in its name."""
    pytest.importorskip("cryptography")
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    own, other = free_address(), free_address()
    job = place.job("--control", "{}:{}".format(*own))
    place.runs()
    command = [*JOB, str(place.folder), "--control", "{}:{}".format(*other)]
    standby = place.standby(command=command)
    watches(standby)
    place.freeze(job)
    wait_until(lambda: remote(other).successor() is not None, "the successor answers", 60)
    successor = standby.command
    with monkeypatch.context() as patch:
        patch.setattr(port, "CONNECT_S_MAX", 0.5)
        with pytest.raises(MinirtError, match="no job has answered"):
            remote(own).ask({"request": "status"}, 30)
    with ThreadPoolExecutor() as callers:
        asked = [
            callers.submit(remote(own).ask, {"request": request}, 30)
            for request in ("status", "figures", "cancel", "status", "cancel", "savepoint")
        ]
        time.sleep(1.0)
        send(job.pid, signal.SIGCONT)
        told = [str(one.exception()) for one in asked]
    assert "None" not in told
    assert any(f"taken over this job's checkpoints: process {successor} of" in one for one in told)
    assert job.ends() == 1
    assert f"process {successor} of host {socket.gethostname()}" in job.said()
    with pytest.raises(JobHasEndedError, match="nobody listens"):
        remote(own).ask({"request": "status"}, 30)
    assert standby.ends() == 0
    place.holds_each_record_once()


@pytest.mark.parametrize("sinks", [[], ["--files-only"]], ids=["ledger", "files"])
def test_a_program_that_freezes_before_a_commit_repeats_and_loses_nothing(
    place: Place, sinks: list[str]
) -> None:
    """It wakes up while its successor works: between its look at the claims and that commit."""
    job = place.job("--freeze-in-commit", *sinks)
    standby = place.standby(command=[*JOB, str(place.folder), *sinks])
    wait_until((place.folder / "frozen").exists, "the program freezes")
    before = place.committed
    place.runs(after=before + 50)
    assert f"no sign of the job for {LEASE_TIMEOUT_S:g} s" in standby.said()
    send(job.pid, signal.SIGCONT)
    wait_until((place.folder / "late").exists, "it commits late")
    assert job.ends() == 1
    assert "another coordinator has taken over" in job.said()
    assert standby.ends() == 0
    place.holds_each_record_once(sinks=2 - len(sinks))


def test_one_that_wakes_up_behind_the_end_of_the_job_changes_nothing(place: Place) -> None:
    job = place.job("--freeze-in-commit", "--count", "1500")
    standby = place.standby(command=[*JOB, str(place.folder), "--count", "1500"])
    wait_until((place.folder / "frozen").exists, "the program freezes")
    assert standby.ends() == 0
    place.holds_each_record_once(1500)
    lease = LeaseReader(place.storage.store).read()
    send(job.pid, signal.SIGCONT)
    assert job.ends() == 1
    assert (place.folder / "late").exists()
    assert LeaseReader(place.storage.store).read() == lease
    place.holds_each_record_once(1500)


def test_of_two_standbys_one_takes_over_and_the_other_watches_on(place: Place) -> None:
    job = place.job("--freeze-in-commit")
    standbys = [place.standby(), place.standby()]
    wait_until((place.folder / "frozen").exists, "the program freezes")
    for standby in standbys:
        assert standby.ends() == 0
    place.holds_each_record_once()
    job.kill()
    begun = sum(standby.said().count("starts ") for standby in standbys)
    lost = sum(standby.said().count("somebody else runs the job") for standby in standbys)
    assert begun == 1 + lost
    assert place.storage.claims()[-1].generation == 1 + begun


def test_a_standby_whose_own_program_is_killed_starts_it_again(place: Place) -> None:
    standby = place.standby("--at-once")
    place.runs()
    send(standby.command, signal.SIGKILL)
    assert standby.ends() == 0
    assert "the command has died with status 137" in standby.said()
    place.holds_each_record_once()


def test_ctrl_c_ends_the_program_and_then_the_standbys(place: Place) -> None:
    holder = place.standby("--at-once")
    place.runs()
    other = place.standby()
    watches(other)
    program = holder.command
    holder.process.send_signal(signal.SIGINT)
    assert holder.ends() == 130
    assert not is_alive(program)
    assert other.ends() == 0
    assert "the job is over: cancelled" in other.said()


def test_when_a_machine_is_shut_down_the_standby_of_another_one_runs_the_job_on(
    place: Place,
) -> None:
    holder = place.standby("--at-once")
    place.runs()
    other = place.standby()
    watches(other)
    program = holder.command
    holder.process.send_signal(signal.SIGTERM)
    assert holder.ends() == 143
    assert not is_alive(program)
    assert other.ends() == 0
    assert "the job's program was ended by a signal" in other.said()
    place.holds_each_record_once()


def test_a_signal_ends_a_standby_that_watches(place: Place) -> None:
    standby = place.standby()
    watches(standby)
    standby.process.send_signal(signal.SIGTERM)
    assert standby.ends(20) == 143
    assert place.storage.claims() == []


FAILS = """
import minirt as rt
env = rt.Environment("broken")
env.source(rt.SequenceSource(5), uid="s").map(lambda n: 1 // 0).sink(rt.DiscardSink(), uid="d")
options = rt.Options(limits=rt.Limits(lease_s=0.1, lease_timeout_s=3.0))
env.execute(checkpointing=rt.Checkpointing({storage!r}), restart=rt.Restart.{restart}, options=options)
"""


def failing(place: Place, restart: str) -> list[str]:
    storage = str(place.folder / "checkpoints")
    return [sys.executable, "-c", FAILS.format(storage=storage, restart=restart)]


def test_a_job_that_fails_for_good_is_not_begun_again(place: Place) -> None:
    twice = failing(place, "fixed_delay(1, '2s')")
    holder = place.standby("--at-once", command=twice)
    wait_until(lambda: place.generation == 1, "the job begins")
    other = place.standby()
    watches(other)
    assert holder.ends() == 1
    assert other.ends() == 1
    assert "job 'broken' has failed: operator" in other.said()
    assert place.storage.claims()[-1].generation == 2


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(7)", 7), ("pass", 2), ("import minirt.nothing", 1)]
)
def test_a_command_that_does_not_begin_the_job_is_not_repeated(
    place: Place, code: str, status: int
) -> None:
    standby = place.standby("--at-once", command=[sys.executable, "-c", code])
    assert standby.ends(30) == status
    assert "has not begun the job" in standby.said()
    assert standby.said().count("starts ") == 1


def test_a_storage_that_cannot_be_read_for_a_while_is_no_silence(place: Place) -> None:
    job = place.job()
    place.runs()
    standby = place.standby()
    watches(standby)
    send(job.pid, signal.SIGSTOP)
    generations = place.folder / "checkpoints" / "generations"
    hidden = generations.rename(generations.with_name("hidden"))
    generations.symlink_to(generations)  # Whatever is done with it fails.
    wait_until(lambda: "cannot look" in standby.said(), "it cannot look")
    time.sleep(LEASE_TIMEOUT_S + 1)
    assert "no sign" not in standby.said()
    generations.unlink()
    hidden.rename(generations)
    send(job.pid, signal.SIGCONT)
    assert job.ends() == 0
    assert standby.ends() == 0
    assert place.storage.claims()[-1].generation == 1
    place.holds_each_record_once()


def test_only_a_process_of_this_machine_is_surely_dead() -> None:
    own = name_of_this_process()
    assert own is not None
    assert not has_surely_ended(own)
    place, pid, started = own.rsplit("/", 2)
    assert has_surely_ended(f"{place}/{pid}/{int(started) - 1}")
    assert not has_surely_ended(f"elsewhere/{pid}/{int(started) - 1}")
    assert not has_surely_ended("nonsense")
    assert not has_surely_ended("")


def test_a_process_that_has_ended_is_dead_before_anybody_has_reaped_it() -> None:
    code = "from minirt.process_names import *; print(name_of_this_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        name = process.stdout.readline().strip()
        assert not has_surely_ended(name)
        process.stdin.write("\n")
        process.stdin.flush()
        gone: Callable[[], bool] = lambda: has_surely_ended(name)  # noqa: E731
        wait_until(gone, "it is dead")
        assert os.path.exists(f"/proc/{process.pid}")
    assert has_surely_ended(name)


def test_an_end_that_only_a_zombie_has_told_is_none(place: Place) -> None:
    """Its successor has claimed the job, and died before it could say anything."""
    store, runs = place.storage.store, Lease("watched", "a", 1, 1, LeaseTimes(0.1, 1.0))
    assert place.storage.claim_generation() == 1
    write_lease(store, runs)
    standby = place.standby("--timeout", "1s")
    watches(standby)
    assert CheckpointStorage(store, 1000).claim_generation() == 2
    write_lease(store, replace(runs, renewals=2, ended="cancelled"))
    assert standby.ends() == 0
    assert "starts " in standby.said()
    place.holds_each_record_once()


SUPERSEDED = """
import os, sys
from minirt.protocol.lease import Lease, LeaseTimes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import RUN_VARIABLE, write_lease
from minirt.storage.store import ObjectStore

store = ObjectStore({storage!r})
mine = CheckpointStorage(store, 1000).claim_generation()
CheckpointStorage(store, 1000).claim_generation()
run = os.environ[RUN_VARIABLE]
write_lease(store, Lease("watched", run, mine, 1, LeaseTimes(0.1, 60.0), "failed", "superseded"))
sys.exit(1)
"""


def test_a_command_that_somebody_else_replaced_has_not_ended_the_job(place: Place) -> None:
    """It says so all the same, and its successor has said nothing yet."""
    code = SUPERSEDED.format(storage=str(place.folder / "checkpoints"))
    standby = place.standby("--at-once", command=[sys.executable, "-c", code])
    wait_until(lambda: "somebody else runs the job" in standby.said(), "it watches on")
    standby.process.send_signal(signal.SIGTERM)
    assert standby.ends(20) == 143
