"""`minirt ui`: what it refuses, each in one line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ui.conftest import done_job

if TYPE_CHECKING:
    from tests.cli.conftest import Call


pytestmark = pytest.mark.usefixtures("registry")  # Without jobs.


def refused(call: Call, *arguments: str) -> str:
    called = call("ui", *arguments)
    assert (called.status, called.out) == (2, "")
    assert called.err.count("\n") == 1, called.err
    return called.err


def test_jobs_and_storages_that_are_not_there(call: Call, tmp_path: Path) -> None:
    assert "no jobs are running" in refused(call)
    assert "there is no job 'x'; no jobs are running; nor is there a storage 'x'" in refused(
        call, "x"
    )
    assert "there is no storage" in refused(call, str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    assert "holds no checkpoints" in refused(call, str(tmp_path / "empty"))


def test_options_that_have_no_effect_or_no_sense(call: Call) -> None:
    assert "--storage-option has no effect" in refused(call, "--storage-option", "key=x")
    assert "--port" in refused(call, "--port", "70000")


def test_a_port_in_use_and_an_address_of_somebody_else(call: Call, tmp_path: Path) -> None:
    with done_job(tmp_path) as storage, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        told = refused(call, str(storage), "--port", port)
        assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in told
        assert "cannot listen on 192.0.2.1" in refused(call, str(storage), "--host", "192.0.2.1")


def test_without_the_extra_it_says_what_to_install(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "minirt.ui.server", None)
    assert "pip install 'minirt[ui]'" in refused(call)
