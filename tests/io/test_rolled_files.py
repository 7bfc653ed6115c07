"""Files that are held back over several checkpoints, and shown as one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import msgpack
import pyarrow.parquet as pq
import pytest

from minirt.data.batch import Rows
from minirt.errors import ConfigurationError, StorageError
from minirt.io import FileSink, Handle, JsonlSink, ParquetSink, SinkContext, SinkWriter, file_writer
from minirt.testing.contracts import JOB, SinkContract, row


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(file_writer, "time", clock)
    return clock


class RollingJob:
    """One job with one writer, whose checkpoints complete, fail, and are restored."""

    def __init__(self, sink_class: type[FileSink], target: str, **options: Any) -> None:
        self._make = lambda: sink_class(target, roll_interval="60s", **options)  # type: ignore[call-arg]
        self.target = target
        self.generation = 0
        self.checkpoint_id = 0
        self.carried: list[Handle] = []
        self.writers: list[SinkWriter] = []
        self.start([])

    def start(self, restored: Sequence[Handle]) -> None:
        self.generation += 1
        self.sink, self.carried = self._make(), []
        self.sink.commit_restored(restored)
        self.sink.discard_uncommitted(restored, JOB, self.generation)
        context = SinkContext(JOB, "out", 0, 1, self.generation)
        self.writer = self.sink.open_writer(context)
        self.writers.append(self.writer)

    def close(self) -> None:
        """Of writers that crashed, only descriptors are left."""
        for writer in self.writers:
            writer.close()

    def write(self, *numbers: int) -> None:
        self.writer.write(Rows([row(n) for n in numbers]))

    def checkpoint(self) -> list[Handle]:
        """What the manifest has of the sink."""
        self.checkpoint_id += 1
        prepared = self.writer.prepare(self.checkpoint_id)
        stored: list[Handle] = msgpack.unpackb(msgpack.packb(prepared.handles))
        if prepared.finish is not None:
            prepared.finish()
        self.carried += stored
        return list(self.carried)

    def commit(self, manifest: Sequence[Handle]) -> None:
        self.sink.commit(manifest)
        self.carried = []

    def files(self) -> list[str]:
        fs, folder = fsspec.core.url_to_fs(self.target)
        names = fs.find(folder) if fs.exists(folder) else []
        return sorted(name for name in names if "/_minirt/" not in name)

    def pending(self) -> int:
        fs, folder = fsspec.core.url_to_fs(self.target)
        return len(fs.find(folder)) - len(self.files()) if fs.exists(folder) else 0

    def visible(self) -> list[int]:
        fs, _ = fsspec.core.url_to_fs(self.target)
        rows: list[Any] = []
        for name in self.files():
            with fs.open(name) as stream:
                if name.endswith(".parquet"):
                    rows += pq.read_table(stream).to_pylist()
                else:
                    rows += [json.loads(line) for line in stream]
        return sorted(record["id"] for record in rows)


@pytest.fixture(params=["local", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "out") if request.param == "local" else f"memory:/{tmp_path}/out"


@pytest.fixture(params=[JsonlSink, ParquetSink])
def world(request: pytest.FixtureRequest, target: str, clock: Clock) -> Iterator[RollingJob]:
    world = RollingJob(request.param, target)
    yield world
    world.close()


def test_one_file_is_shown_for_many_checkpoints(world: RollingJob, clock: Clock) -> None:
    for number in range(5):
        world.write(number)
        world.commit(world.checkpoint())
        assert world.visible() == []
        clock.now += 10
    clock.now += 30
    world.write(5)
    world.commit(world.checkpoint())
    assert world.visible() == [0, 1, 2, 3, 4, 5]
    assert len(world.files()) == 1
    assert world.pending() == 0


def test_the_end_of_input_shows_all_that_was_held_back(world: RollingJob) -> None:
    for number in range(3):
        world.write(number)
        world.commit(world.checkpoint())
    world.writer.release()
    world.commit(world.checkpoint())
    assert (world.visible(), len(world.files()), world.pending()) == ([0, 1, 2], 1, 0)


def test_what_is_held_back_at_a_crash_is_shown_by_the_restore(world: RollingJob) -> None:
    world.write(0)
    world.commit(world.checkpoint())
    world.write(1)
    manifest = world.checkpoint()
    world.write(2)
    world.start(manifest)
    assert world.visible() == [0, 1]
    assert world.pending() == 0
    world.start(manifest)
    assert world.visible() == [0, 1]


def test_an_older_checkpoint_finds_its_records_in_the_joined_file(
    world: RollingJob, clock: Clock
) -> None:
    world.write(0)
    world.commit(world.checkpoint())
    world.write(1)
    older = world.checkpoint()
    world.commit(older)
    clock.now += 60
    world.write(2)
    world.commit(world.checkpoint())
    world.start(older)
    assert world.visible() == [0, 1, 2]


def test_a_failed_checkpoint_that_joined_files_is_carried_on(
    world: RollingJob, clock: Clock
) -> None:
    world.write(0)
    world.commit(world.checkpoint())
    world.write(1)
    world.checkpoint()
    clock.now += 60
    world.write(2)
    world.checkpoint()
    world.write(3)
    manifest = world.checkpoint()
    world.start(manifest)
    assert world.visible() == [0, 1, 2, 3]
    assert world.pending() == 0


def test_lost_output_that_was_held_back_is_told_of(world: RollingJob) -> None:
    world.write(0)
    manifest = world.checkpoint()
    world.sink.discard_uncommitted([], JOB, 9)
    with pytest.raises(StorageError, match="lost"):
        world.start(manifest)


def test_a_file_that_cannot_be_joined_leaves_what_was_held_back(
    world: RollingJob, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(0)
    manifest = world.checkpoint()
    world.commit(manifest)
    clock.now += 60
    world.write(1)

    def fail(*args: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(world.sink._target().__class__, "open", fail)
    with pytest.raises(StorageError, match="No space left"):
        world.checkpoint()
    world.start(manifest)
    assert (world.visible(), world.pending()) == ([0], 0)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_record_is_shown_once(
    seed: int, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints complete, fail and are committed late; commits end halfway; jobs come back."""
    random = Random(seed)
    world = RollingJob(JsonlSink, str(tmp_path), partition_by="part" if seed % 2 else None)
    manifest: list[Handle] = []
    durable = written = 0
    renames = [0]

    def cut(source: str, target: str, rename: Any = os.rename) -> None:
        renames[0] -= 1
        if renames[0] == 0:
            raise KeyboardInterrupt
        rename(source, target)

    def cut_removal(path: str, unlink: Any = os.unlink) -> None:
        renames[0] -= 1
        if renames[0] == 0:
            raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(os, "rename", cut)
    monkeypatch.setattr(os, "unlink", cut_removal)
    for _ in range(60):
        match random.choice(["write", "write", "complete", "fail", "wait", "crash"]):
            case "write":
                record = {**row(written), "part": written % 3}
                world.writer.write(Rows([record]))
                written += 1
            case "complete" | "fail" as how:
                held = world.checkpoint()
                if how == "fail":
                    continue
                manifest, durable = held, written
                if random.random() < 0.7:
                    world.commit(manifest)
            case "wait":
                clock.now += 30
            case "crash":
                renames[0] = random.randint(1, 6)
                try:
                    world.sink.commit(manifest)
                    world.start(manifest)
                except KeyboardInterrupt:
                    pass
                renames[0] = 0
                world.start(manifest)
                written = durable
                assert world.visible() == [*range(durable)]
    world.writer.release()
    world.commit(world.checkpoint())
    assert world.visible() == [*range(written)]
    assert world.pending() == 0
    world.close()


def test_a_sink_that_cannot_join_its_files_refuses_an_interval() -> None:
    class Other(FileSink):
        suffix = ".x"

        def encoding(self, operator: str) -> Any:
            raise NotImplementedError

    with pytest.raises(ConfigurationError, match="Other does not say how to join"):
        Other("/tmp/x", roll_bytes=1, roll_interval="1s")


class TestRolledJsonl(SinkContract):
    """With an interval of nothing, every checkpoint shows what it has."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.world = RollingJob(JsonlSink, str(tmp_path / "out"))

    def new_sink(self) -> FileSink:
        return JsonlSink(self.world.target, roll_interval=0)

    def visible(self, sink: Any) -> list[Any]:
        lines = [line for name in self.world.files() for line in Path(name).read_text().split("\n")]
        return [json.loads(line) for line in lines if line]

    def pending(self) -> list[str]:
        fs, folder = fsspec.core.url_to_fs(self.world.target)
        names = fs.find(folder) if fs.exists(folder) else []
        return sorted(name for name in names if "/_minirt/" in name)
