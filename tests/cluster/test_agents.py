"""Jobs whose workers are forked by agents that somebody else has started: they come, die and freeze."""

from __future__ import annotations

import json
import logging
import re
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.protocol.job_events import JobStatus
from minirt.runtime.control.connection import connect_to
from minirt.runtime.control.handshake import NONCE_BYTES, REPLY_BYTES
from minirt.runtime.control.host_hello import Credentials, HostHello
from minirt.runtime.network.sockets import Network
from minirt.runtime.network.tls import Certificate
from tests.campaigns import soaked
from tests.cluster.agents import Agents, PlayedCluster, agents_of
from tests.runtime.campaign import compare, write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import is_alive, needs_proc, send, wait_until

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, needs_proc]

COUNT = 1500


def start(
    folder: Path,
    cluster: rt.HostCluster,
    *,
    mode: str = "aligned",
    case: str = "keyed",
    count: int = COUNT,
    per_second: float = 1500.0,
    interval: str = "50ms",
    **options: Any,
) -> rt.Job:
    env = rt.Environment(case, parallelism=2)
    write_files(build(CASES[case], env, count, per_second=per_second), folder)
    return env.start(
        checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval=interval, mode=mode),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(placement="slots", **options),
        cluster=cluster,
    )


def finishes(job: rt.Job, folder: Path, case: str = "keyed", count: int = COUNT) -> rt.JobResult:
    """The result; fails unless every record is there exactly once."""
    result = job.wait(90)
    assert result.status is JobStatus.FINISHED
    assert compare(CASES[case], count, 2, folder) == (0, 0)
    return result


def running(job: rt.Job) -> None:
    wait_until(lambda: job.status is JobStatus.RUNNING, "the job runs", 60)


def test_a_job_runs_on_two_agents_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    job = start(tmp_path, PlayedCluster(slots=(1, 1)))
    with agents_of(job) as agents:
        running(job)
        assert [len(agent.workers) for agent in agents.all] == [1, 1]
        assert finishes(job, tmp_path).restarts == 0
        assert [agent.wait() for agent in agents.all] == [0, 0]
        assert "Traceback" not in "".join(agent.said() for agent in agents.all)
    assert not list((tmp_path / "checkpoints" / "probes").glob("*"))
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("mode", "victim"),
    [
        ("unaligned", "agent"),
        ("unaligned", "worker"),
        pytest.param("aligned", "worker", marks=pytest.mark.soak),
    ],
)
def test_what_a_kill_interrupts_is_done_exactly_once(
    tmp_path: Path, mode: str, victim: str
) -> None:
    job = start(tmp_path, PlayedCluster(slots=(1, 1, 1)), mode=mode)
    with agents_of(job) as agents:
        running(job)
        time.sleep(0.3)
        busy = next(agent for agent in agents.all if agent.workers)
        orphans = busy.workers
        send(busy.pid if victim == "agent" else orphans[0], signal.SIGKILL)
        wait_until(lambda: job.restarts == 1, "the spare host takes over")
        assert finishes(job, tmp_path).restarts == 1
        wait_until(lambda: not any(is_alive(pid) for pid in orphans), "orphans end")


@pytest.mark.parametrize("mode", ["unaligned", *soaked("aligned")])
def test_a_frozen_host_is_replaced_and_comes_back_as_a_spare(tmp_path: Path, mode: str) -> None:
    cluster = PlayedCluster(slots=(1, 1, 1))
    job = start(tmp_path, cluster, mode=mode, heartbeat_timeout="2s", case="reduced")
    with agents_of(job) as agents:
        running(job)
        time.sleep(0.3)
        frozen = next(agent for agent in agents.all if agent.workers)
        zombies = frozen.workers
        for pid in [frozen.pid, *zombies]:
            send(pid, signal.SIGSTOP)
        wait_until(lambda: job.restarts >= 1, "its generation fails")
        running(job)
        assert frozen.workers == zombies
        for pid in [*zombies, frozen.pid]:
            send(pid, signal.SIGCONT)
        wait_until(lambda: not any(is_alive(pid) for pid in zombies), "zombies end")
        assert finishes(job, tmp_path, "reduced").restarts == 1
        assert frozen.wait() == 0


def test_agents_and_workers_end_when_the_program_is_killed(tmp_path: Path) -> None:
    """A fork of the test plays the program: only its connections tell anybody that it has gone."""
    import subprocess
    import sys

    script = tmp_path / "program.py"
    script.write_text(
        "import minirt as rt\n"
        "env = rt.Environment('endless', parallelism=2)\n"
        "env.source(rt.SequenceSource.endless(splits=2)).key_by(lambda n: n % 7)"
        ".reduce(max).sink(rt.DiscardSink())\n"
        f"env.execute(cluster=rt.HostCluster('127.0.0.1:0', credentials={str(tmp_path / 'c')!r}))\n"
    )
    said = tmp_path / "said"
    with said.open("w") as errors:
        program = subprocess.Popen(
            [sys.executable, str(script)],
            stderr=errors,
            cwd=Path.cwd(),
            env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
    try:
        wait_until(lambda: "minirt host --coordinator" in said.read_text(), "it says what to do")
        where = re.search(r"--coordinator (\S+)", said.read_text())
        assert where is not None
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600
        agents = Agents(rt.Invitation("endless", where[1], (tmp_path / "c").read_text(), 2))
        agent = agents.add(2)
        wait_until(lambda: len(agent.workers) == 4, "workers run")
        pids = agent.workers
        program.kill()
        assert agent.wait() == 0
        assert not any(is_alive(pid) for pid in pids)
        agent.kill()
    finally:
        program.kill()
        program.wait()


def test_what_workers_log_is_in_the_log_of_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = rt.Environment("talks", parallelism=1)
    numbers = env.source(rt.SequenceSource(10, splits=1), uid="talks")
    numbers.map(_speaks_and_fails).sink(rt.DiscardSink())
    cluster = PlayedCluster(slots=(1,))
    with agents_of(env.start(cluster=cluster, restart=rt.Restart.none())) as agents:
        assert agents.all[0].wait() == 0
    [told] = [record for record in caplog.records if record.name == "shop"]
    assert (told.levelname, told.getMessage()) == ("WARNING", "no price: 100 %")
    assert (told.job, told.operator, told.subtask) == ("talks", "talks", 0)  # type: ignore[attr-defined]


def _speaks_and_fails(number: int) -> int:
    logging.getLogger("shop").warning("no price: 100 %")
    raise ValueError(number)


# Who is refused.


def test_a_host_with_other_versions_is_refused_in_one_line_and_the_job_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = start(tmp_path, PlayedCluster(slots=(2,)))
    with agents_of(job) as agents:
        known = Credentials.from_text(agents.invitation.credentials)
        host, port = agents.invitation.coordinator.split(":")
        network = Network(known.token, "", certificate=known.certificate)
        stranger = connect_to((host, int(port)), network)
        hello = HostHello("old", 1, 4, "127.0.0.1", {"Python": "3.9", "minirt": "0.0.1"})
        stranger.send(hello.plain())
        (answer,) = stranger.receive().values()
        stranger.close()
        assert answer.startswith("it has Python 3.9 (the job's program has 3.")
        assert "minirt 0.0.1" in answer
        assert "numpy missing" in answer
        assert "\n" not in answer
        assert finishes(job, tmp_path).restarts == 0
    assert caplog.text.count("host old at 127.0.0.1 is refused") == 1


@pytest.mark.parametrize("wrong", ["token", "certificate"])
def test_an_agent_with_wrong_credentials_gives_up_and_says_why(tmp_path: Path, wrong: str) -> None:
    job = start(tmp_path, PlayedCluster(slots=(2,)))
    with agents_of(job) as agents:
        said = json.loads(agents.invitation.credentials)
        if wrong == "token":
            said["token"] = secrets.token_bytes(32).hex()
        else:
            said["certificate"] = Certificate.make().certificate
        options = ("--wait", "0s")
        agent = agents.add(2, credentials=json.dumps(said), options=options)
        assert agent.wait() == 1
        line = agent.said()
        assert line.startswith("minirt: error: no coordinator of that job at 127.0.0.1:")
        assert said["token"] not in line
        assert finishes(job, tmp_path).restarts == 0


def test_strangers_at_the_coordinators_port_are_turned_away_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = start(tmp_path, PlayedCluster(slots=(1, 1)), count=3000, per_second=500, interval="200ms")
    with agents_of(job) as agents:
        host, port = agents.invitation.coordinator.split(":")
        address = (host, int(port))
        known = Credentials.from_text(agents.invitation.credentials)
        assert known.certificate is not None
        silent = [socket.create_connection(address) for _ in range(300)]
        for noise in (b"GET / HTTP/1.1\r\n\r\n", secrets.token_bytes(100_000)):
            with socket.create_connection(address) as visitor:
                visitor.sendall(noise)
                assert len(everything(visitor)) < 100  # an alert of TLS at most
        for said in (bytes(NONCE_BYTES), secrets.token_bytes(500)):
            visitor = known.certificate.client(socket.create_connection(address))
            visitor.sendall(said)
            heard = everything(visitor)
            visitor.close()
            assert len(heard) <= REPLY_BYTES
            assert known.token not in heard
        for visitor in silent:
            visitor.close()
        assert finishes(job, tmp_path, count=3000).restarts == 0
    assert len(re.findall("a stranger from .* was turned away", caplog.text)) == 1


def everything(visitor: Any) -> bytes:
    """What the other side says before it hangs up."""
    visitor.settimeout(20)
    heard = b""
    try:
        while part := visitor.recv(4096):
            heard += part
    except ConnectionError:
        pass
    return heard


def test_too_few_slots_end_the_job_with_what_to_do(tmp_path: Path) -> None:
    job = start(tmp_path, PlayedCluster(slots=(1,), wait="3s"))
    with agents_of(job), pytest.raises(rt.JobFailedError) as failed:
        job.wait(60)
    said = str(failed.value)
    assert re.search(r"it needs 2 slots, and hosts with [01] have come within 3 s", said)
    assert "the test starts agents" in str(failed.value)


def test_with_fewer_slots_subtasks_share_them_if_that_is_allowed(tmp_path: Path) -> None:
    job = start(tmp_path, PlayedCluster(slots=(1,), wait="10s", min_slots=1))
    with agents_of(job) as agents:
        running(job)
        assert [len(agent.workers) for agent in agents.all] == [2]
        finishes(job, tmp_path)


def test_a_machine_that_is_missing_for_long_counts_once(tmp_path: Path) -> None:
    cluster = PlayedCluster(slots=(1, 1), wait="10s")
    job = start(tmp_path, cluster, per_second=150.0, interval="200ms")
    with agents_of(job) as agents:
        running(job)
        lost = agents.all[0]
        lost.kill()
        wait_until(lambda: job.restarts == 1, "the loss is noticed", 30)
        time.sleep(12)
        assert (job.status, job.restarts) == (JobStatus.DEPLOYING, 1)
        agents.add(1)
        running(job)
        agents.all.remove(lost)
        assert finishes(job, tmp_path).restarts == 1


def test_a_job_spreads_over_its_hosts_again_when_they_come_back(tmp_path: Path) -> None:
    cluster = PlayedCluster(slots=(1, 1), wait="4s", min_slots=1)
    job = start(tmp_path, cluster, per_second=150.0, interval="200ms")
    with agents_of(job) as agents:
        running(job)
        lost, kept = agents.all
        lost.kill()
        wait_until(lambda: len(kept.workers) == 2, "workers share the slot that is left", 30)
        running(job)
        assert job.restarts == 1
        came = agents.add(1)
        wait_until(lambda: job.restarts == 2, "the job spreads again", 30)
        running(job)
        assert [len(agent.workers) for agent in (kept, came)] == [1, 1]
        assert "enough hosts have come" in str(job.figures.last_failure)
        agents.all.remove(lost)
        assert finishes(job, tmp_path).restarts == 2


def test_without_tls_the_token_is_still_proven_and_never_sent(tmp_path: Path) -> None:
    job = start(tmp_path, PlayedCluster(slots=(1, 1), tls=False))
    with agents_of(job) as agents:
        assert json.loads(agents.invitation.credentials)["certificate"] is None
        finishes(job, tmp_path)
