"""Host agents that know several addresses: they go to the program that has taken their job over."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import minirt as rt
from tests.campaigns import soaked
from tests.cluster.agents import Agent
from tests.operations.standby_place import JOB, Place, watches
from tests.runtime.processes import needs_proc, send

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, needs_proc]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place.made(tmp_path) as place:
        yield place


@pytest.fixture
def addresses() -> list[str]:
    """Two at which nobody listens."""
    with socket.socket() as one, socket.socket() as other:
        for bound in (one, other):
            bound.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{bound.getsockname()[1]}" for bound in (one, other)]


@pytest.fixture
def agents(place: Place, addresses: list[str]) -> Iterator[list[Agent]]:
    options = ("--credentials", str(place.folder / "credentials"))
    invitation = rt.Invitation("watched", ",".join(addresses), "", 2)
    started = [Agent(invitation, 1, options=options) for _ in range(2)]
    yield started
    for agent in started:
        agent.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, *soaked(signal.SIGSTOP)])
def test_agents_of_a_program_that_is_killed_or_frozen_work_for_its_successor(
    place: Place, addresses: list[str], agents: list[Agent], number: signal.Signals
) -> None:
    job = place.job("--listen", addresses[0])
    command = [*JOB, str(place.folder), "--listen", addresses[1]]
    place.runs()
    standby = place.standby(command=command)
    watches(standby)
    if number is signal.SIGSTOP:
        place.freeze(job)
    else:
        send(job.pid, number)
    assert standby.ends() == 0
    place.holds_each_record_once()
    if number is signal.SIGSTOP:
        send(job.pid, signal.SIGCONT)
        assert job.ends() == 1
    assert [agent.wait(10) for agent in agents] == [0, 0]  # The successor has said that it is over.
    assert [agent.said().count("looks for the program") for agent in agents] == [1, 1]
