"""What `open_checkpoints` finds in a storage, and how little it reads for it."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.errors import MalformedDataError
from minirt.data.values import Pickled
from minirt.inspect.export import export
from minirt.inspect.values import json_text
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.state.sections import CHUNK_ENTRIES
from minirt.state.stored import KINDS, pack_event_time
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.local_files import LocalFiles
from tests.inspect.scenario import LINK, SPLIT, frame, new_storage, store

TOTALS = {key: key * 1.5 for key in range(30)}
NAMES = {"ann": ["a", 1], "bob": []}


@pytest.fixture(params=["local", "memory", "inlined"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    url = f"memory://{uuid.uuid4()}" if request.param == "memory" else str(tmp_path / "chk")
    return new_storage(url, inline_bytes_max=1 << 20 if request.param == "inlined" else 0)


def opened(storage: CheckpointStorage, **options: Any) -> rt.Checkpoints:
    return rt.open_checkpoints(storage.store.root, **options)


def test_all_that_a_checkpoint_holds_can_be_read(storage: CheckpointStorage) -> None:
    frames = [frame(1, 2, times=[10, 20]), frame({"a": 3})]
    timers = [(50, "ann"), (40, "bob")]
    store(storage, 7, {"value": TOTALS, "names": NAMES}, timers=timers, frames=frames)
    checkpoint = opened(storage).latest()
    assert (checkpoint.id, checkpoint.generation, checkpoint.counts) == (7, 1, True)
    assert list(checkpoint.operators) == ["numbers", "total", "out"]
    total = checkpoint.operator("total")
    assert {state.name: state.entries for state in total.states} == {"names": 2, "value": 30}
    assert dict(total.state()) == TOTALS
    assert dict(total.state("names")) == NAMES
    assert sorted(total.named("timers", "event")) == [(40, "bob"), (50, "ann")]
    assert total.named("timers", "event").entries == 2
    [splits] = checkpoint.operator("numbers").entries
    assert splits.entries == 1
    progress = {"order": 0, "info": SPLIT[2], "offset": 17, "skip": 3, "finished": False}
    assert list(splits) == [("a.txt", progress)]
    assert checkpoint.operator("out").entries == ()
    [channel] = checkpoint.in_flight
    assert (channel.link, channel.receiver_uid, channel.records) == (LINK, "total", 3)
    assert list(channel) == [(1, 10), (2, 20), ({"a": 3}, None)]
    assert checkpoint.verify() == []


def test_a_real_job_can_be_looked_into(tmp_path: Path) -> None:
    env = rt.Environment("sums", parallelism=2)
    numbers = env.source(rt.SequenceSource(100), uid="numbers")
    numbers.key_by(lambda n: n % 10).reduce(lambda a, b: a + b, uid="sums").sink(rt.DiscardSink())
    env.execute(runner="inline", checkpointing=rt.Checkpointing(tmp_path / "chk"))
    [checkpoint] = rt.open_checkpoints(tmp_path / "chk")
    state = checkpoint.operator("sums").state()
    assert dict(state) == {key: sum(range(key, 100, 10)) for key in range(10)}
    assert state.entries == 10
    assert checkpoint.manifest.job == "sums"


def test_state_of_many_chunks_is_counted_and_read_whole(tmp_path: Path) -> None:
    many = {key: -key for key in range(2 * CHUNK_ENTRIES + 3)}
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": many})
    state = opened(storage).latest().operator("total").state()
    assert state.entries == len(many)
    assert dict(state) == many


def test_what_holds_nothing_is_not_there(storage: CheckpointStorage) -> None:
    store(storage, 1, {"value": {}})
    total = opened(storage).latest().operator("total")
    assert total.entries == ()
    with pytest.raises(rt.ConfigurationError, match="no state 'value'; there are: none"):
        total.state()


def test_looking_at_a_checkpoint_reads_none_of_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    long_texts = {key: f"{key:01000}" for key in range(3000)}
    store(storage, 1, {"value": long_texts}, frames=[frame("y" * 10)])
    read: list[int] = []
    whole, ranged = LocalFiles.read, LocalFiles.read_range

    def count(data: bytes) -> bytes:
        read.append(len(data))
        return data

    monkeypatch.setattr(LocalFiles, "read", lambda *of: count(whole(*of)))
    monkeypatch.setattr(LocalFiles, "read_range", lambda *of: count(ranged(*of)))
    checkpoint = opened(storage).latest()
    state = checkpoint.operator("total").state()
    assert (state.entries, checkpoint.in_flight[0].records) == (3000, 1)
    assert state.bytes > 2_000_000
    assert sum(read) < 200_000


def test_a_checkpoint_is_found_by_number_name_path_and_as_the_latest(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    for checkpoint_id in (3, 4):
        store(storage, checkpoint_id, {"value": {"id": checkpoint_id}})
    checkpoints = opened(storage)
    assert [checkpoint.id for checkpoint in checkpoints] == [3, 4]
    assert len(checkpoints) == 2
    name = CheckpointPaths.folder(checkpoints.find(3).manifest.key).rstrip("/")
    for which in (3, "3", "0003", name, checkpoints.find(3).path, f"{storage.store.root}/{name}/"):
        assert checkpoints.find(which).id == 3
    for which in ("latest", storage.store.root + "/"):
        assert checkpoints.find(which).id == 4
    for wrong in (5, "5", "five", "", "-3", "9" * 5000, name[:-1], "²"):
        with pytest.raises(rt.ConfigurationError, match=r"no checkpoint .*, which holds 3, 4"):
            checkpoints.find(wrong)


def test_an_orphan_can_be_looked_at_and_is_said_to_be_one(tmp_path: Path) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    first = store(storage, 1, {"value": {"a": 1}})
    store(storage, 2, {"value": {"a": 2}})
    assert storage.resolve_generation(storage.claim_generation(), first.key)
    checkpoints = opened(storage)
    assert checkpoints.latest().id == 1
    assert not checkpoints.find(2).counts
    assert [entry["stored"] for entry in checkpoints.history()] == ["kept", "orphan"]


def test_of_two_checkpoints_of_one_number_the_one_that_counts_is_meant(tmp_path: Path) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    first = store(storage, 1, {"value": {"a": 1}})
    wanted = store(storage, 2, {"value": {"a": 2}})
    assert storage.resolve_generation(storage.claim_generation(), first.key)
    orphan = store(storage, 2, {"value": {"a": 3}}, generation=2)
    assert storage.resolve_generation(storage.claim_generation(), wanted.key)
    checkpoints = opened(storage)
    assert checkpoints.find(2).manifest.key == wanted.key
    name = CheckpointPaths.folder(orphan.key).rstrip("/")
    assert checkpoints.find(name).manifest.key == orphan.key


def test_pickles_are_not_loaded_unless_that_is_allowed(tmp_path: Path) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": {"a": Bomb(), "b": 2}}, allow_pickle=True)
    values = dict(opened(storage).latest().operator("total").state())
    assert isinstance(values["a"], Pickled)
    assert repr(values["a"]) == f"Pickled({len(values['a'].data)} bytes)"
    assert values["b"] == 2
    assert not Bomb.loaded
    dict(opened(storage, allow_pickle=True).latest().operator("total").state())
    assert Bomb.loaded


class Bomb:
    loaded = False

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return (go_off, ())


def go_off() -> str:
    Bomb.loaded = True
    return "loaded"


def test_text_that_is_no_unicode_and_endless_nesting_become_json(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(390):
        nested = [nested]
    values = {"a": "\udc80", "b": nested, "c": float("nan"), "d": {1: b"\1"}}
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": values})
    table = opened(storage).latest().table()
    rows = [row for batch in table.record_batches() for row in batch.to_pylist()]
    texts = {row["key"]: row["value"] for row in rows}
    assert texts.pop("b") == "[" * 391 + "]" * 391
    assert texts == {"a": '"\\udc80"', "c": '"nan"', "d": '[[1, "AQ=="]]'}
    assert export(table, str(tmp_path / "x.jsonl"), lambda written: None) == 4
    exported = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    assert next(row["value"] for row in exported if row["key"] == "a") == "\udc80"


def test_what_is_nested_beyond_any_use_is_named_as_such() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert json_text({"a": deep}) == '"nested too deep to be shown"'


@pytest.mark.parametrize(
    ("values", "arrow", "read"),
    [
        ([1, 2], pa.int64(), None),
        ([1, 2.5], pa.float64(), [1.0, 2.5]),
        ([None, "a"], pa.string(), None),
        ([{"a": 1}, {"a": 2}], pa.struct([("a", pa.int64())]), None),
        ([(1, "x"), (2, "y")], None, [{"_1": 1, "_2": "x"}, {"_1": 2, "_2": "y"}]),
        ([[1], []], pa.list_(pa.int64()), None),
        ([Decimal("1.5"), Decimal("2.5")], pa.decimal128(2, 1), None),
        ([dt.date(2020, 1, 1), None], pa.date32(), None),
        ([1, "a"], pa.string(), ["1", '"a"']),
        ([10**30, 1], pa.string(), [str(10**30), "1"]),
        ([{1: 2}, {3: 4}], None, [[{"key": 1, "value": 2}], [{"key": 3, "value": 4}]]),
        ([{1, 2}, {2}], pa.list_(pa.int64()), [[1, 2], [2]]),
        ([b"\0", b"\xff"], pa.binary(), None),
        ([None, None], pa.string(), None),
    ],
)
def test_values_become_arrow_of_one_type_or_json_text(
    tmp_path: Path, values: list[Any], arrow: pa.DataType | None, read: list[Any] | None
) -> None:
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": dict(enumerate(values))})
    table = opened(storage).latest().table("state", uid="total")
    batches = list(table.record_batches())
    assert len(batches) == len(table.parts) == 2
    rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda r: r["key"])
    assert [row["value"] for row in rows] == (values if read is None else read)
    assert [(row["uid"], row["name"], row["subtask"]) for row in rows] == [
        ("total", "value", n) for n in (0, 1)
    ]
    assert arrow is None or {batch.schema.field("value").type for batch in batches} == {arrow}


def test_how_far_event_time_is_in_windows_can_be_read(tmp_path: Path) -> None:
    env, out = rt.Environment(parallelism=1), rt.CollectSink()
    marks = rt.Watermarks.monotonous(timestamp="t")
    events = env.source(rt.CollectionSource([{"k": 1, "t": 5}]), uid="events", watermarks=marks)
    windows = events.key_by("k").window(rt.Tumbling("1s")).aggregate(rt.Count(), uid="windows")
    windows.sink(out)
    env.execute(runner="inline", checkpointing=rt.Checkpointing(str(tmp_path)))
    held = rt.open_checkpoints(str(tmp_path)).latest().operator("windows")
    assert held.unknown_bytes == 0
    [time] = [found for found in held.entries if found.kind == "time"]
    assert list(time) == [("watermark", 4)], "what the record told: the end of time is not stored"
    assert (time.columns, time.entries) == (("clock", "ms"), 1)
    later = KINDS["time"].read(io.BytesIO(pack_event_time(4)), False)
    assert list(later.entries) == [(["watermark"], [4])]
    with pytest.raises(MalformedDataError):
        KINDS["time"].read(io.BytesIO(b"short"), False)
