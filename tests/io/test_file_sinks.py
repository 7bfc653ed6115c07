"""Files that become visible exactly once, locally and elsewhere."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.data.batch import Rows
from minirt.errors import ConfigurationError, MinirtError, StorageError
from minirt.io import FileSink, JsonlSink, ParquetSink, Sink, target_folder
from minirt.io.base import Committable, CommitterContext
from minirt.testing.contracts import JOB, SinkContract, row


class FileSinkContract(SinkContract):
    """What all sinks of files have in common, over the folder `self.target`."""

    sink_class: type[FileSink]
    target: str
    storage_options: Mapping[str, Any] = {}

    def new_sink(self) -> Sink:
        return self.sink_class(self.target, storage_options=self.storage_options)  # type: ignore[call-arg]

    def visible(self, sink: Sink) -> list[Any]:
        return [one for name in self.files() for one in self.content(name)]

    def pending(self) -> list[str]:
        return [name for name in self.all_files() if "/_minirt/" in name]

    def files(self) -> list[str]:
        """What a reader that knows nothing of minirt finds."""
        return [name for name in self.all_files() if "/_" not in name]

    def all_files(self) -> list[str]:
        fs, folder = fsspec.core.url_to_fs(self.target, **self.storage_options)
        fs.invalidate_cache()
        return sorted(fs.find(folder)) if fs.exists(folder) else []

    def content(self, name: str) -> list[Any]:
        fs, _ = fsspec.core.url_to_fs(self.target, **self.storage_options)
        data = fs.cat_file(name)
        if name.endswith(".parquet"):
            rows: list[Any] = pq.read_table(pa.BufferReader(data)).to_pylist()
            return rows
        return [json.loads(line) for line in data.decode().splitlines()]

    def test_names_sort_by_subtask_and_checkpoint(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink, subtask=3, generation=2)
        (handle,) = self.prepared(writer, 12, row(1))
        sink.commit([handle])
        (name,) = self.files()
        assert name.startswith(f"{name.rpartition('/')[0]}/part-00003-00000012-0002-0000-")
        assert handle["rows"] == 1

    def test_the_output_of_an_earlier_run_stays_as_it_is(self) -> None:
        sink = self.new_sink()
        assert isinstance(sink, FileSink)
        assert not sink.has_output()
        sink.commit(self.prepared(self.writer(sink), 1, row(1)))
        before = {name: self.content(name) for name in self.files()}
        sink = self.new_sink()
        assert sink.has_output()  # type: ignore[attr-defined]
        sink.discard_uncommitted([], JOB, 2)
        sink.commit(self.prepared(self.writer(sink), 1, row(2)))
        after = {name: self.content(name) for name in self.files()}
        assert len(after) == 2
        assert after | before == after

    def remove(self, name: str) -> None:
        fs, _ = fsspec.core.url_to_fs(self.target, **self.storage_options)
        fs.rm_file(name)

    def test_a_reader_may_take_files_away_once_they_are_known_to_be_committed(self) -> None:
        sink = self.new_sink()
        handles = [*self.prepared(self.writer(sink), 4, row(1), row(2))]
        sink.commit(handles)
        for name in self.files():
            self.remove(name)
        held = [Committable(4, handle) for handle in handles]
        known = sink.open_committer(CommitterContext(JOB, "sink", 2, committed=4))
        known.commit_restored(held)
        assert self.files() == []
        unknown = sink.open_committer(CommitterContext(JOB, "sink", 2, committed=3))
        with pytest.raises(StorageError, match="output of a completed checkpoint is lost"):
            unknown.commit_restored(held)

    def test_what_a_crash_left_pending_is_published_beside_what_was_taken(self) -> None:
        sink = self.new_sink()
        taken = self.prepared(self.writer(sink), 4, row(1))
        left = self.prepared(self.writer(sink, subtask=1), 4, row(2))
        sink.commit(taken)
        for name in self.files():
            self.remove(name)
        known = sink.open_committer(CommitterContext(JOB, "sink", 2, committed=4))
        known.commit_restored([Committable(4, handle) for handle in (*taken, *left)])
        assert self.visible(sink) == [row(2)]

    def add_strangers(self) -> list[str]:
        fs, _ = fsspec.core.url_to_fs(self.target, **self.storage_options)
        folder = self.pending()[0].rpartition("/")[0]
        names = [".DS_Store", ".nfs0001", "00000-0001-x.pending", "a b", "old-1-y", "x/00000-0001"]
        for name in names:
            fs.makedirs(f"{folder}/{name}".rpartition("/")[0], exist_ok=True)
            fs.pipe_file(f"{folder}/{name}", b"")
        return sorted(f"{folder}/{name}" for name in names)

    def test_a_crafted_handle_reaches_nothing_outside_of_the_folder(self) -> None:
        sink = self.new_sink()
        (handle,) = self.prepared(self.writer(sink), 1, row(1))
        fs, folder = fsspec.core.url_to_fs(self.target, **self.storage_options)
        pending, name = handle["pending"], handle["final"].rpartition("/")[2]
        other = f"{folder.rpartition('/')[0]}/other"
        owner = pending.removeprefix(folder).rpartition("/")[0]
        victims = [
            f"{other}/precious",
            f"{other}/x-1-y",
            f"{other}{owner}/00000-0001-0000-abcdef01.pending",
            f"{other}{owner}/{pending.rpartition('/')[2]}",
            f"{folder}/_minirt/other-0123456789abcdef/x-1-y",
        ]
        for victim in victims:
            fs.makedirs(victim.rpartition("/")[0], exist_ok=True)
            fs.pipe_file(victim, b"kept")
        crafted = [{**handle, "pending": victim} for victim in victims]
        crafted += [{**handle, "final": victim} for victim in victims]
        crafted += [{**handle, "pending": v, "final": f"{other}/{name}"} for v in victims]
        crafted += [{**handle, "parts": [victim]} for victim in victims]
        crafted += [{**handle, "joined": victim} for victim in victims]
        crafted += [{**handle, "parts": "ab"}, {**handle, "parts": 7}, {**handle, "joined": 7}]
        for fake in crafted:
            for act in (sink.commit, sink.commit_restored, self.discard):
                with pytest.raises(MinirtError):
                    act([fake])
        for victim in victims:
            assert fs.cat_file(victim) == b"kept"
        sink.commit([handle])
        assert self.visible(sink) == [row(1)]

    def discard(self, handles: list[Any]) -> None:
        self.new_sink().discard_uncommitted(handles, JOB, before_generation=9)

    def test_a_loss_of_pending_output_names_both_files(self) -> None:
        sink = self.new_sink()
        (handle,) = self.prepared(self.writer(sink), 1, row(1))
        sink.discard_uncommitted([], JOB, 2)
        with pytest.raises(StorageError) as caught:
            sink.commit([handle])
        assert handle["pending"] in str(caught.value)
        assert handle["final"] in str(caught.value)

    def test_large_output_is_rolled_into_several_files_in_order(self) -> None:
        sink = self.sink_class(self.target, roll_bytes=1, storage_options=self.storage_options)
        writer = self.writer(sink)
        for number in range(3):
            writer.write(Rows([row(number)]))
        handles = self.finished(writer, 1)
        sink.commit(handles)
        assert self.visible(sink) == [row(0), row(1), row(2)]
        assert len(self.files()) == len(handles)


class LocalContract(FileSinkContract):
    @pytest.fixture(autouse=True)
    def _target(self, tmp_path: Path) -> None:
        self.target = str(tmp_path / "not" / "yet" / "there")

    @pytest.mark.parametrize("survivors", [0, 1])
    def test_a_crash_between_two_renames_is_completed_by_the_next_commit(
        self, survivors: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        handles = self.prepared(writer, 1, row(1)) + self.prepared(writer, 2, row(2))
        renames: list[Any] = []

        def crash(source: str, target: str) -> None:
            if len(renames) == survivors:
                raise KeyboardInterrupt
            renames.append(os.replace(source, target))

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", crash)
            with pytest.raises(KeyboardInterrupt):
                sink.commit(handles)
        assert len(self.files()) == survivors
        sink = self.new_sink()
        sink.commit(handles)
        assert self.visible(sink) == [row(1), row(2)]

    def test_a_successor_may_publish_at_the_same_moment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that was frozen between its look at the files and the rename goes on behind it."""
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))

        def too_late(source: str, target: str) -> None:
            os.replace(source, target)
            raise FileNotFoundError(source)

        monkeypatch.setattr(os, "rename", too_late)
        sink.commit(handles)
        assert self.visible(sink) == [row(1)]
        assert self.pending() == []

    def test_a_taken_name_is_never_overwritten(self) -> None:
        sink = self.new_sink()
        (handle,) = self.prepared(self.writer(sink), 1, row(1))
        Path(handle["final"]).write_bytes(b"precious")
        with pytest.raises(StorageError, match="taken by another file"):
            sink.commit([handle])
        assert Path(handle["final"]).read_bytes() == b"precious"
        assert Path(handle["pending"]).exists()

    def test_a_full_disk_is_reported_with_the_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        full_disk = functools.partial(open, "/dev/full", "wb")
        monkeypatch.setattr(target_folder, "open", lambda *_, **__: full_disk(), raising=False)
        writer = self.writer(self.new_sink())
        with pytest.raises(StorageError, match=r"No space left on device.*\.pending") as caught:
            self.prepared(writer, 1, row(1))
        assert "/_minirt/" in caught.value.path

    def test_pending_output_is_synced_before_finish_returns(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        sink = self.new_sink()
        (handle,) = self.prepared(self.writer(sink), 1, row(1))
        assert synced[-2:] == [handle["pending"], os.path.dirname(handle["pending"])]
        assert self.target in synced
        synced.clear()
        sink.commit([handle])
        assert self.target in synced

    def test_a_folder_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigurationError, match=r"cannot write into .*file/out"):
            self.sink_class(tmp_path / "file" / "out").validate()  # type: ignore[call-arg]
        with pytest.raises(ConfigurationError, match=r"cannot write into /proc/out"):
            self.sink_class("/proc/out").validate()  # type: ignore[call-arg]
        assert not (tmp_path / "not").exists()

    def test_a_long_stretch_without_checkpoint_is_spilled_to_the_pending_file(self) -> None:
        writer = self.writer(self.new_sink())
        for number in range(40):
            writer.write(Rows([row(n) | {"text": os.urandom(500).hex()} for n in range(1000)]))
            if number == 20:
                (pending,) = self.pending()
                assert os.path.getsize(pending) > 8 << 20

    def test_a_relative_path_stays_the_same_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        sink = self.sink_class("not/yet/there")  # type: ignore[call-arg]
        monkeypatch.chdir("/")
        sink.commit(self.prepared(self.writer(sink), 1, row(1)))
        assert self.visible(sink) == [row(1)]


class RemoteContract(FileSinkContract):
    @pytest.fixture(autouse=True)
    def _target(self, tmp_path: Path) -> None:
        self.target = f"memory:/{tmp_path}"

    def test_a_crash_between_copy_and_delete_is_completed_by_the_next_commit(self) -> None:
        sink = self.new_sink()
        (handle,) = self.prepared(self.writer(sink), 1, row(1))
        fsspec.filesystem("memory").cp_file(handle["pending"], handle["final"])
        sink.commit([handle])
        assert self.visible(sink) == [row(1)]
        assert self.pending() == []

    def test_a_successor_may_delete_at_the_same_moment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        files = type(fsspec.filesystem("memory"))
        delete = files.rm_file

        def too_late(fs: Any, path: str) -> None:
            delete(fs, path)
            raise FileNotFoundError(path)

        monkeypatch.setattr(files, "rm_file", too_late)
        sink.commit(handles)
        assert self.visible(sink) == [row(1)]
        assert self.pending() == []


class TestLocalParquetSink(LocalContract):
    sink_class = ParquetSink


class TestRemoteParquetSink(RemoteContract):
    sink_class = ParquetSink


class TestLocalJsonlSink(LocalContract):
    sink_class = JsonlSink


class TestRemoteJsonlSink(RemoteContract):
    sink_class = JsonlSink


def test_the_sink_of_a_bad_path_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="path"):
        JsonlSink("")
    with pytest.raises(ConfigurationError, match="roll_bytes"):
        JsonlSink("/tmp/x", roll_bytes=0)
    with pytest.raises(ConfigurationError, match="compression must be one of"):
        ParquetSink("/tmp/x", compression="zip")
    with pytest.raises(ConfigurationError, match="schema must be"):
        ParquetSink("/tmp/x", schema={"a": "int64"})  # type: ignore[arg-type]
