"""The same job started twice in one place: the first one ends, and says who runs the job now."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import minirt as rt
from tests.campaigns import soaked
from tests.cluster.agents import Agent
from tests.operations.standby_place import Place
from tests.runtime.processes import needs_proc

pytestmark = [pytest.mark.processes, needs_proc]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place.made(tmp_path) as place:
        yield place


@pytest.mark.parametrize("launcher", ["hosts", *soaked("local")])
def test_the_first_one_ends_and_names_the_second(place: Place, launcher: str) -> None:
    with contextlib.ExitStack() as undo:
        first, second = [(), ()] if launcher == "local" else listening(place, undo)
        replaced = place.job(*first)
        place.runs()
        runs = place.job(*second)
        assert replaced.ends() == 1
        said = replaced.said().splitlines()[-1]
        who = f"process {runs.pid} of host {socket.gethostname()}"
        assert said.endswith(f"another coordinator has taken over this job's checkpoints: {who}")
        assert runs.ends() == 0
    place.holds_each_record_once()


def listening(place: Place, undo: contextlib.ExitStack) -> list[tuple[str, str]]:
    """The options of both programs; agents know both."""
    pytest.importorskip("cryptography")
    with socket.socket() as one, socket.socket() as other:
        for bound in (one, other):
            bound.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{bound.getsockname()[1]}" for bound in (one, other)]
    options = ("--credentials", str(place.folder / "credentials"))
    invitation = rt.Invitation("watched", ",".join(addresses), "", 2)
    for _ in range(2):
        undo.callback(Agent(invitation, 1, options=options).kill)
    return [("--listen", address) for address in addresses]
