"""`minirt checkpoints show`, `verify`, `diff`, `export` and `delete`."""

from __future__ import annotations

import io
import json
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt.protocol.manifest import MANIFEST_VERSION, SubtaskStats
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.local_files import LocalFiles
from minirt.storage.parts import encode_part
from tests.inspect.scenario import frame, new_storage, store

if TYPE_CHECKING:
    from tests.cli.conftest import Call


@pytest.fixture
def stored(tmp_path: Path) -> CheckpointStorage:
    """Checkpoints 1 and 2 of a job; the newer one has records in flight."""
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": {"a": 1, "b": 2, "c": 3}}, timers=[(10, "a")])
    frames = [frame(5, 6, times=[50, 60])]
    store(storage, 2, {"value": {"a": 1, "b": 9, "d": 4}, "seen": {"a": b"\1"}}, frames=frames)
    return storage


@pytest.fixture
def root(stored: CheckpointStorage) -> str:
    return stored.store.root


def contents(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def test_show_prints_what_a_checkpoint_holds(call: Call, root: str) -> None:
    called = call("checkpoints", "show", root, "2", "--handles")
    assert (called.status, called.err) == (0, "")
    lines = [" ".join(line.split()) for line in called.out.splitlines()]
    assert lines[0] == "checkpoint 2 of job sums"
    for line in (
        "mode unaligned",
        "generation 1",
        "duration 500 ms",
        "numbers source 1 splits - 1 31",
        "total total > out 2 state seen 1 27",
        "numbers > total:0 hash 0 1 in 2 51",
        "total > out 0 100 ms 200 ms 30 ms 40 ms 400 ms 500 60 70 yes",
        'out 0 2 {"file": "part-1", "raw": "AQ=="}',
    ):
        assert [found for found in lines if found.startswith(line.rpartition(" ")[0])], line
    assert "out 0 2 1" in [
        " ".join(line.split()) for line in call("checkpoints", "show", root).out.splitlines()
    ]


def test_show_in_json_has_every_figure(call: Call, root: str) -> None:
    described = json.loads(call("checkpoints", "show", root, "--json").out)
    assert (described["checkpoint_id"], described["job"]) == (2, "sums")
    [numbers, total, out] = described["operators"]
    assert [held["kind"] for held in numbers["holds"]] == ["splits"]
    entries = {held["name"]: held["entries"] for held in total["holds"]}
    assert entries == {"seen": 1, "value": 3}
    assert [part["entries"] for part in total["holds"][1]["subtasks"]] == [2, 1]
    assert (out["holds"], out["parallelism"]) == ([], 2)
    [channel] = described["in_flight"]
    assert (channel["records"], channel["side"]) == (2, "in")
    assert described["sink_handles"][0]["handles"] == [{"file": "part-1", "raw": "AQ=="}]
    assert described["subtasks"][0]["sync_s"] == 0.03


def test_operators_of_one_name_are_told_apart_by_their_uid(call: Call, tmp_path: Path) -> None:
    alike = [
        SubtaskStats(vertex, subtask, "JsonlSource", *[0.0] * 5, *[0] * 3, False)
        for vertex in (0, 1)
        for subtask in range(2)
    ]
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {}, stats=alike)
    shown = call("checkpoints", "show", storage.store.root).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    rows = [line.partition(" 0 ms")[0] for line in lines if line.startswith("JsonlSource")]
    assert rows == [f"JsonlSource ({uid}) {n}" for uid in ("numbers", "total") for n in (0, 1)]


def test_names_in_a_checkpoint_cannot_steer_the_terminal(call: Call, tmp_path: Path) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"\x1b[2Jgone": {"a": 1}})
    called = call("checkpoints", "show", storage.store.root)
    assert "\x1b" not in called.out
    assert "\\x1b[2Jgone" in called.out


def test_a_table_on_a_terminal_has_the_same_cells(
    call: Call, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    shown = call("checkpoints", "show", root).out
    assert "numbers > total:0" in shown
    assert "─" in shown


def test_verify_says_what_is_damaged_by_its_status_too(call: Call, root: str) -> None:
    called = call("checkpoints", "verify", root)
    assert called.status == 0
    assert called.out.count("all checksums are right") == 2
    path = Path(root) / "chk-00000001-g00000001" / "v1-s0.part"
    path.write_bytes(path.read_bytes()[:-1])
    called = call("checkpoints", "verify", root)
    assert (called.status, called.err) == (1, "")
    assert "is cut short" in called.out
    assert str(path) in called.out
    assert call("checkpoints", "verify", root, "2").status == 0
    called = call("checkpoints", "verify", root, "1", "--json")
    assert called.status == 1
    [found] = json.loads(called.out)
    assert (found["checkpoint_id"], found["problems"][0]["path"]) == (1, str(path))


def test_verify_goes_on_behind_a_manifest_that_cannot_be_read(call: Call, root: str) -> None:
    [manifest, _] = sorted(Path(root).glob("manifests/*"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    called = call("checkpoints", "verify", root)
    assert called.status == 1
    first, second = called.out.splitlines()
    assert str(manifest) in first
    assert "all checksums are right" in second


def test_diff_compares_figures_and_keys(call: Call, root: str) -> None:
    assert call("checkpoints", "diff", root, "1").status == 0
    assert "added" not in call("checkpoints", "diff", root, "1").out
    found = json.loads(call("checkpoints", "diff", root, "1", "2", "--keys", "--json").out)
    assert found["checkpoint_id"] == [1, 2]
    assert found["in_flight_records"] == [0, 2]
    changes = {
        (held["kind"], held["name"]): [held[name] for name in ("added", "removed", "changed")]
        for held in found["holds"]
    }
    assert changes == {
        ("splits", ""): [0, 0, 0],
        ("state", "seen"): [1, 0, 0],
        ("state", "value"): [1, 1, 1],
        ("timers", "event"): [0, 1, 0],
    }
    text = call("checkpoints", "diff", root, "1", "2", "--keys").out
    [row] = [line.split() for line in text.splitlines() if "state" in line and "value" in line]
    assert row[:5] + row[-3:] == ["total", "state", "value", "3", "3", "1", "1", "1"]


def test_diff_compares_with_a_checkpoint_elsewhere(call: Call, root: str, tmp_path: Path) -> None:
    other = new_storage(str(tmp_path / "other"))
    store(other, 5, {"value": {"a": 1}})
    found = json.loads(call("checkpoints", "diff", root, "1", other.store.root, "--json").out)
    assert found["checkpoint_id"] == [1, 5]


def test_export_writes_state_and_records(call: Call, root: str, tmp_path: Path) -> None:
    target = tmp_path / "state.parquet"
    called = call("checkpoints", "export", root, "2", "--to", str(target), "--name", "value")
    assert (called.status, called.out) == (0, f"wrote 3 rows to {target}\n")
    rows = pq.read_table(target).to_pylist()
    assert {row["key"]: row["value"] for row in rows} == {"a": 1, "b": 9, "d": 4}
    assert {row["uid"] for row in rows} == {"total"}
    lines = tmp_path / "all.jsonl"
    called = call("checkpoints", "export", root, "--uid", "total", "--to", str(lines), "--json")
    assert json.loads(called.out) == {"file": str(lines), "rows": 4}
    exported = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {"uid": "total", "name": "seen", "subtask": 0, "key": "a", "value": "AQ=="} in exported
    in_flight = tmp_path / "records.parquet"
    call("checkpoints", "export", root, "--what", "in-flight", "--to", str(in_flight))
    assert [(row["timestamp"], row["record"]) for row in pq.read_table(in_flight).to_pylist()] == [
        (50, 5),
        (60, 6),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("all.jsonl", "chk", "records.parquet", "state.parquet")
    ]


def test_export_of_what_is_not_there_is_an_empty_file(
    call: Call, root: str, tmp_path: Path
) -> None:
    target = tmp_path / "none.parquet"
    called = call("checkpoints", "export", root, "1", "--what", "in-flight", "--to", str(target))
    assert called.out == f"wrote 0 rows to {target}\n"
    assert pq.read_table(target).schema.names[-2:] == ["timestamp", "record"]


def test_export_leaves_no_half_file_when_state_is_damaged(
    call: Call, root: str, tmp_path: Path
) -> None:
    path = Path(root) / "chk-00000002-g00000001" / "v1-s1.part"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    called = call("checkpoints", "export", root, "--to", str(tmp_path / "x.jsonl"))
    assert (called.status, called.out, called.err.count("\n")) == (1, "", 1)
    assert str(path) in called.err
    assert [path.name for path in tmp_path.iterdir()] == ["chk"]


def test_delete_removes_one_checkpoint_and_no_other(call: Call, root: str) -> None:
    before = contents(root)
    called = call("checkpoints", "delete", root, "1", "--yes")
    assert (called.status, called.err) == (0, "")
    assert called.out.startswith("deleted checkpoint 1 of generation 1")
    left = {path: data for path, data in before.items() if "chk-00000001" not in path}
    assert contents(root) == left
    assert call("checkpoints", "verify", root).status == 0


def refused_deletion(call: Call, root: str, *arguments: str) -> str:
    before = contents(root)
    called = call("checkpoints", "delete", root, *arguments)
    assert (called.status, called.out, called.err.count("\n")) == (2, "", 1)
    assert contents(root) == before
    return called.err


def test_the_newest_checkpoint_is_not_deleted_unless_forced(call: Call, root: str) -> None:
    assert "is the newest" in refused_deletion(call, root, "2", "--yes")
    assert "is the newest" in refused_deletion(call, root, "latest", "--yes")
    deleted = json.loads(call("checkpoints", "delete", root, "2", "--yes", "--force", "--json").out)
    assert (deleted["checkpoint_id"], deleted["files"], len(deleted["left"])) == (2, [], 4)
    assert all(Path(root, file).exists() for file in deleted["left"])
    assert [checkpoint.id for checkpoint in rt.open_checkpoints(root)] == [1]


def test_files_that_another_checkpoint_builds_on_are_not_deleted(
    call: Call, stored: CheckpointStorage
) -> None:
    store(stored, 3, {}, references=("chk-00000001-g00000001/v1-s0.part",))
    root = stored.store.root
    complaint = refused_deletion(call, root, "1", "--yes", "--force")
    assert "checkpoint 3 builds on 1 files of checkpoint 1" in complaint
    assert call("checkpoints", "delete", root, "2", "--yes").status == 0


def test_a_manifest_that_cannot_be_read_may_refer_to_anything(call: Call, root: str) -> None:
    manifest = sorted(Path(root).glob("manifests/*"))[1]
    manifest.write_bytes(manifest.read_bytes()[:-1])
    assert "may refer to files" in refused_deletion(call, root, "1", "--yes")
    # It can be deleted itself.
    assert call("checkpoints", "delete", root, "2", "--yes", "--force").status == 0


def test_nothing_is_deleted_where_nobody_can_be_asked(call: Call, root: str) -> None:
    assert "--yes is needed" in refused_deletion(call, root, "1")
    assert "--yes is needed" in refused_deletion(call, root, "1", "--json")


@pytest.mark.parametrize(("answer", "left"), [("y", [2]), ("n", [1, 2])])
def test_somebody_at_a_terminal_is_asked(
    call: Call, root: str, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[int]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    called = call("checkpoints", "delete", root, "1")
    assert called.status == (0 if answer == "y" else 1)
    assert "Delete checkpoint 1 of generation 1" in called.out
    assert [checkpoint.id for checkpoint in rt.open_checkpoints(root)] == left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_storage_that_cannot_be_written_to_is_one_line(
    call: Call, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalFiles, path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalFiles, "delete", refuse)
    before = contents(root)
    called = call("checkpoints", "delete", root, "1", "--yes")
    assert (called.status, called.out, called.err.count("\n")) == (1, "", 1)
    assert "Permission denied" in called.err
    assert contents(root) == before


@pytest.mark.parametrize(
    ("target", "status", "complaint"),
    [
        ("no/such/folder/x.jsonl", 1, "No such file or directory"),
        ("file.txt/x.jsonl", 1, "Not a directory"),
        ("x.csv", 2, "ends in .parquet or .jsonl"),
        ("there.jsonl", 2, "exists already"),
    ],
)
def test_an_export_that_cannot_be_written_is_one_line(
    call: Call, root: str, tmp_path: Path, target: str, status: int, complaint: str
) -> None:
    (tmp_path / "file.txt").write_text("mine")
    (tmp_path / "there.jsonl").write_text("mine")
    before = contents(str(tmp_path))
    called = call("checkpoints", "export", root, "--to", str(tmp_path / target))
    assert (called.status, called.out, called.err.count("\n")) == (status, "", 1)
    assert complaint in called.err
    assert contents(str(tmp_path)) == before


COMMANDS = (
    ["show"],
    ["verify"],
    ["diff", "1", "2"],
    ["diff", "1", "2", "--keys"],
    ["export"],
    ["delete", "1", "--yes"],
)


def called_on(call: Call, root: str, command: list[str], *options: str) -> Any:
    return call("checkpoints", command[0], root, *command[1:], *options)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_a_place_without_checkpoints(
    call: Call, tmp_path: Path, command: list[str]
) -> None:
    called = called_on(call, str(tmp_path / "nowhere"), command)
    assert (called.status, called.out) == (2, "")
    assert called.err == f"minirt: error: {tmp_path / 'nowhere'} holds no checkpoints\n"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "command", [["show", "9"], ["verify", "9"], ["diff", "1", "9"], ["delete", "9"]]
)
def test_every_command_refuses_a_checkpoint_that_is_not_there(
    call: Call, root: str, command: list[str]
) -> None:
    called = called_on(call, root, command)
    assert (called.status, called.out) == (2, "")
    assert called.err == f"minirt: error: no checkpoint 9 in {root}, which holds 1, 2\n"


TOO_NEW = ("future manifest", "future frame")


def checksum(whole: bytes) -> bytes:
    """That of the index of a part, if its version were 9."""
    length = int.from_bytes(whole[9:13], "little")
    return zlib.crc32(b"\x09" + whole[17 : 17 + length]).to_bytes(4, "little")


def damaged_manifests(whole: bytes) -> dict[str, bytes]:
    """Manifests that no job has written, by what is wrong with them."""
    plain = {"version": MANIFEST_VERSION + 1}
    bomb = b"\xdd\x00\x0f\xff\xff" * 1000 + b"\xc0" * (1 << 20)
    return {
        "truncated": whole[:-5],
        "empty": b"",
        "future manifest": b"".join(encode_part({"manifest": msgpack.packb(plain)})),
        "future frame": whole[:8] + b"\x09" + whole[9:13] + checksum(whole) + whole[17:],
        "nested": b"".join(encode_part({"manifest": b"\x91" * 10**6})),
        "bomb": b"".join(encode_part({"manifest": bomb})),
        "extension": b"".join(encode_part({"manifest": b"\xc7\x01\x0c."})),
        "not ours": b"PAR1" * 100,
    }


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_survives_crafted_manifests(
    call: Call, root: str, command: list[str]
) -> None:
    manifest = sorted(Path(root).glob("manifests/*"))[1]
    for kind, damaged in damaged_manifests(manifest.read_bytes()).items():
        manifest.write_bytes(damaged)
        before = contents(root)
        called = called_on(call, root, command)
        said = called.out + called.err
        assert called.status == (2 if command[0] == "delete" else 1), (kind, said)
        assert str(manifest) in said
        assert len(said.splitlines()) <= 2
        assert ("use the version of minirt that wrote it" in said) == (kind in TOO_NEW), said
        assert contents(root) == before
