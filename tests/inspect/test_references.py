"""State that is stored in several files: it is read as one, in place, from a copy, and by the kit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.errors import CorruptCheckpointError
from minirt.inspect import open_checkpoints
from minirt.inspect.export import export
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import Manifest, Reference, SnapshotRef
from minirt.state import segments
from minirt.state.array_table import ArrayTable
from minirt.state.keyed import KeyedState
from minirt.state.sections import section_bytes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.savepoints import copy_checkpoint
from minirt.storage.store import ObjectStore
from minirt.testing.conformance import stored as kit
from tests.inspect.scenario import GROUPS, new_storage, store

SECTION = "total\x1fstate/value"


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 2)


class Dicts:
    """A dict whose keys are set and deleted in turn."""

    def __init__(self) -> None:
        self._state = KeyedState(GROUPS, range(GROUPS))
        self.expected: dict[Any, Any] = self._state.table("value")

    def change(self, step: int) -> None:
        keys = range(40) if step == 1 else range(step, step + 3)
        self._state.change([*keys, 30 + step])
        for key in keys:
            self.expected[key] = (step, key)
        self.expected.pop(30 + step, None)

    def snapshot(self) -> tuple[Mapping[str, bytes], list[str]]:
        sections = self._state.snapshot()
        return {SECTION: section_bytes(sections["value"])}, self._state.builds_on()["value"]

    def on_stored(self, path: str) -> None:
        self._state.on_stored(path)


class Arrays:
    """Sums and means of two key columns."""

    def __init__(self) -> None:
        self._table = ArrayTable(["a", "b"], [rt.Sum("v", "sum"), rt.Mean("v", "mean")], "total")
        self.expected: dict[Any, Any] = {}

    def change(self, step: int) -> None:
        keys = list(range(40)) if step == 1 else [step, step + 1]
        names = [f"k{key}" for key in keys]
        batch = pa.record_batch({"a": keys, "b": names, "v": [step] * len(keys)})
        self._table.add(batch, None)
        for key in zip(keys, names, strict=True):
            held = self.expected.get(key, {"sum": 0, "mean": [0.0, 0]})
            total, count = held["mean"]
            self.expected[key] = {"sum": held["sum"] + step, "mean": [total + step, count + 1]}

    def snapshot(self) -> tuple[Mapping[str, bytes], list[str]]:
        section = self._table.snapshot()
        assert section is not None
        return {SECTION: section_bytes(section)}, self._table.builds_on()

    def on_stored(self, path: str) -> None:
        self._table.on_stored(path)


def stored_in_files(storage: CheckpointStorage, state: Dicts | Arrays) -> Manifest:
    """The last of several checkpoints of the state."""
    refs: list[SnapshotRef] = []
    for step in range(1, 7):
        state.change(step)
        sections, paths = state.snapshot()
        references = [Reference(path, (SECTION,)) for path in sorted(paths)]
        refs.append(storage.write_snapshot(step, 1, 1, 2, sections, references))
        assert refs[-1].path is not None
        state.on_stored(refs[-1].path)
    assert len(refs[-1].references) > 1
    return store(storage, 6, {}, more=[refs[-1]])


@pytest.mark.parametrize("kind", [Dicts, Arrays])
def test_state_in_several_files_is_read_as_one(kind: Any, tmp_path: Path) -> None:
    storage, state = new_storage(f"{tmp_path}/chk"), kind()
    stored_in_files(storage, state)
    found = open_checkpoints(f"{tmp_path}/chk").latest().operators["total"].state()
    entries = list(found)
    assert dict(entries) == state.expected
    assert len(entries) == found.entries == len(state.expected)


@pytest.mark.parametrize("kind", [Dicts, Arrays])
def test_a_copy_stands_alone(kind: Any, tmp_path: Path) -> None:
    storage, state = new_storage(f"{tmp_path}/chk"), kind()
    manifest = stored_in_files(storage, state)
    copy_checkpoint(manifest, storage.store, ObjectStore(f"{tmp_path}/copy"))
    for path in storage.store.list():
        storage.store.delete(path)
    checkpoint = open_checkpoints(f"{tmp_path}/copy").latest()
    assert checkpoint.verify() == []
    assert dict(checkpoint.operators["total"].state()) == state.expected


def test_an_export_holds_each_key_once(tmp_path: Path) -> None:
    storage, state = new_storage(f"{tmp_path}/chk"), Dicts()
    stored_in_files(storage, state)
    table = open_checkpoints(f"{tmp_path}/chk").latest().table("state", uid="total")
    export(table, f"{tmp_path}/state.jsonl", lambda rows: None)
    rows = [json.loads(line) for line in Path(f"{tmp_path}/state.jsonl").read_text().splitlines()]
    assert sorted((row["key"], tuple(row["value"])) for row in rows) == sorted(
        state.expected.items()
    )


def test_the_kit_reads_it_from_the_bytes(tmp_path: Path) -> None:
    storage, state = new_storage(f"{tmp_path}/chk"), Dicts()
    manifest = stored_in_files(storage, state)
    objects = {path: storage.store.read(path) for path in storage.store.list()}
    checkpoint = kit.StoredCheckpoint(objects, CheckpointPaths.manifest(manifest.key))
    assert sorted(checkpoint.state("total", "value")) == sorted(state.expected.items())


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    storage, state = new_storage(f"{tmp_path}/chk"), Dicts()
    manifest = stored_in_files(storage, state)
    path = manifest.snapshots[-1].references[0].path
    storage.store.delete(path)
    found = open_checkpoints(f"{tmp_path}/chk").latest().operators["total"].state()
    with pytest.raises(CorruptCheckpointError, match="missing"):
        list(found)
