"""Which jobs run: entries that only their user can read, and what is left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from minirt import MinirtError
from minirt.operations.registry import Entry, Registry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "minirt" / "jobs"


def test_an_entry_can_be_found_until_it_is_removed(folder):
    registry, entry = Registry(folder), Entry.new("sums", 12.5)
    registry.add(entry)
    assert Registry(folder).entries() == [entry]
    registry.remove(entry)
    registry.remove(entry)
    assert registry.entries() == list(folder.iterdir()) == []


def test_folder_and_entries_are_their_users_alone_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        registry, entry = Registry(folder), Entry.new("sums", 12.5)
        registry.add(entry)
    finally:
        os.umask(before)
    [file] = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_tokens_and_ids_differ():
    entries = [Entry.new("sums", 1.0) for _ in range(20)]
    assert len({entry.token for entry in entries}) == len({entry.id for entry in entries}) == 20
    assert min(len(entry.token) for entry in entries) == 64


def test_entries_of_processes_that_died_are_removed(folder):
    registry = Registry(folder)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = Entry.new("gone", 1.0)
    for process in ("", own.process.replace(f"/{own.pid}/", f"/{dead.pid}/")):
        left = replace(own, pid=dead.pid, process=process)
        registry.add(left)
        registry.socket_path(left).touch()
        assert registry.entries() == list(folder.iterdir()) == []


def test_an_entry_whose_number_is_another_process_by_now_is_removed(folder):
    registry, own = Registry(folder), Entry.new("gone", 1.0)
    registry.add(replace(own, process=own.process + "1"))
    assert registry.entries() == list(folder.iterdir()) == []


def test_jobs_of_other_hosts_on_a_shared_home_are_left_alone(folder):
    """By number their processes seem dead here."""
    registry = Registry(folder)
    own, elsewhere = Entry.new("here", 1.0), Entry.new("there", 1.0)
    elsewhere = replace(elsewhere, pid=2**22 - 1, process=f"another-boot/7/{2**22 - 1}/99")
    for entry in (own, elsewhere):
        registry.add(entry)
        registry.socket_path(entry).touch()
    assert registry.entries() == [own]
    assert registry.socket_path(elsewhere).exists()
    assert (folder / f"{elsewhere.id}.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"id": 1}',
        "[" * 60_000,
        "x" * 100_000,
        '{"id":"../../x","name":"n","pid":1,"started_at":1.0,"token":"t"}',
    ],
    ids=range(8),
)
def test_what_is_no_entry_is_passed_over(folder, content):
    registry = Registry(folder)
    (folder / "strange.json").write_text(content)
    assert registry.entries() == []


def test_a_folder_that_others_may_enter_is_not_trusted(folder, tmp_path):
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    with pytest.raises(MinirtError, match=r"others may enter .*chmod 700"):
        Registry(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(MinirtError, match="is not a folder of yours"):
        Registry(tmp_path / "link")


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(MinirtError, match=f"cannot list running jobs in {tmp_path}/file"):
        Registry.of_user()


def test_without_a_runtime_folder_it_is_among_the_state_of_programs(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    Registry.of_user()
    assert (tmp_path / ".local/state/minirt/jobs").is_dir()
