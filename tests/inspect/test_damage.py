"""Checkpoints that are damaged, or were crafted: each is one CorruptCheckpointError with its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

import minirt as rt
from minirt.data.layout import pack_values
from minirt.protocol.manifest import ManifestKey
from minirt.state.sections import CHUNK_ENTRIES
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.parts import encode_part
from tests.inspect.scenario import frame, new_storage, store


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": {key: key for key in range(100)}}, frames=[frame(1, 2)])
    return storage


def files(storage: CheckpointStorage) -> list[Path]:
    return sorted(Path(storage.store.root).glob("chk-*/*"))


def latest(storage: CheckpointStorage) -> rt.StoredCheckpoint:
    return rt.open_checkpoints(storage.store.root).latest()


def manifest_file(storage: CheckpointStorage) -> Path:
    [path] = Path(storage.store.root).glob("manifests/*")
    return path


def test_each_kind_of_damage_to_a_file_is_found(storage: CheckpointStorage) -> None:
    assert len(files(storage)) == 4
    for path in files(storage):
        whole = path.read_bytes()
        other = whole[:-1] + bytes([whole[-1] ^ 1])
        for damaged in (whole[:-1], whole[:20], b"", whole + b"x", other, b"PAR1" + whole):
            path.write_bytes(damaged)
            [error] = latest(storage).verify()
            assert error.path == str(path)
        path.unlink()
        [error] = latest(storage).verify()
        assert (error.message, error.path) == ("missing", str(path))
        path.write_bytes(whole)
        assert latest(storage).verify() == []


def test_a_good_file_of_another_job_is_not_taken_for_the_one_referred_to(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    other = new_storage(str(tmp_path / "other"))
    store(other, 1, {"value": {key: key + 1 for key in range(100)}})
    path = files(storage)[1]
    path.write_bytes(files(other)[1].read_bytes())
    [error] = latest(storage).verify()
    assert "not the part that the manifest refers to" in error.message
    with pytest.raises(rt.CorruptCheckpointError, match="not the part"):
        _ = latest(storage).operators


def test_damage_within_state_is_noticed_by_who_reads_it(storage: CheckpointStorage) -> None:
    path = files(storage)[1]
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(rt.CorruptCheckpointError) as caught:
        list(latest(storage).operator("total").state())
    assert caught.value.path == str(path)


def test_files_of_older_checkpoints_are_verified_too(storage: CheckpointStorage) -> None:
    parent = files(storage)[1].relative_to(storage.store.root).as_posix()
    store(storage, 2, {"value": {}}, references=(parent,))
    assert latest(storage).parents == (parent,)
    assert latest(storage).verify() == []
    path = Path(storage.store.root) / parent
    path.write_bytes(path.read_bytes()[:-1])
    [error] = latest(storage).verify()
    assert error.path == str(path)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "chk-00000001-g00000001/../../x"])
def test_a_manifest_that_points_out_of_the_storage_is_refused(tmp_path: Path, path: str) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    (tmp_path / "secret").write_text("x")
    store(storage, 1, {"value": {1: 1}}, references=(path,))
    [error] = latest(storage).verify()
    assert "not a relative path" in error.message


BOMBS = {
    "nested without end": b"\x91" * 100_000,
    "long arrays in long arrays": b"\xdd\x00\x0f\xff\xff" * 1000 + b"\xc0" * (1 << 20),
    "a text of 4 GB": b"\xdb\xff\xff\xff\xff",
    "a pickle": msgpack.packb({"version": msgpack.ExtType(12, b"cos\nsystem\n")}),
    "a list as a key": b"\x81\x90\xc0",
    "not a map": msgpack.packb([1]),
    "a future version": msgpack.packb({"version": 99}),
    "fields of other types": msgpack.packb({"version": 1, "job": []}),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_crafted_manifest_is_refused(storage: CheckpointStorage, bomb: bytes) -> None:
    path = manifest_file(storage)
    path.write_bytes(b"".join(encode_part({"manifest": bomb})))
    with pytest.raises(rt.CorruptCheckpointError) as caught:
        latest(storage)
    assert caught.value.path == str(path)


def replaced_state(storage: CheckpointStorage, section: bytes) -> list[Any]:
    """What is read of a checkpoint whose state is this section, with checksums that are right."""
    manifest = storage.read_manifest(ManifestKey(1, 1))
    name = "total\x1fstate/value"
    content = b"".join(encode_part({name: section}, {name: 1}))
    forged = CheckpointStorage(storage.store, 0)
    ref = manifest.snapshots[1]
    path = Path(storage.store.root) / str(ref.path)
    path.write_bytes(content)
    plain = manifest.to_plain()
    plain["snapshots"][1]["bytes"] = len(content)
    plain["snapshots"][1]["crc"] = int.from_bytes(content[13:17], "little")
    manifest_file(storage).write_bytes(b"".join(encode_part({"manifest": msgpack.packb(plain)})))
    return list(latest(forged).operator("total").state())


def chunk(keys: bytes, values: bytes) -> bytes:
    lengths = len(keys).to_bytes(4, "little") + len(values).to_bytes(4, "little")
    return b"KEYD\x01\0\0\0" + lengths + keys + values


ONE, MANY = pack_values([1]), pack_values([1] * (CHUNK_ENTRIES + 1))
CRAFTED = {
    "another head": b"TIME\x01\0\0\0",
    "a future version": b"KEYD\x09\0\0\0",
    "a chunk of 4 GB": b"KEYD\x01\0\0\0" + b"\xff" * 8,
    "cut off": chunk(ONE, ONE)[:-1],
    "more entries than a chunk has": chunk(MANY, MANY),
    "unequal columns": chunk(ONE, pack_values([1, 2])),
    "keys that are lists": chunk(b"\x10" + b"\x91" * 10_000, ONE),
    "an unknown extension": chunk(
        b"\x10" + msgpack.packb([1, [0, [msgpack.ExtType(99, b"")]]]), ONE
    ),
    "an unknown layout": chunk(b"\x10" + msgpack.packb([1, [77, 0]]), ONE),
    "no values": chunk(b"", b""),
}


@pytest.mark.parametrize("section", CRAFTED.values(), ids=CRAFTED.keys())
def test_crafted_state_is_refused(storage: CheckpointStorage, section: bytes) -> None:
    with pytest.raises(rt.CorruptCheckpointError, match=r"cannot be decoded.*\.part"):
        replaced_state(storage, section)


def test_a_forged_state_that_is_right_is_read(storage: CheckpointStorage) -> None:
    """The test above tests the forgery, not the way it got there."""
    assert (1, 1) in replaced_state(storage, chunk(ONE, ONE))
