"""What every sink that commits in two phases must keep to; the tests of a sink inherit these."""

from __future__ import annotations

import gc
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from minirt.data.batch import Columns, Rows
from minirt.io import Handle, Sink, SinkContext, SinkIdentity, SinkWriter

OPERATOR = "out"

JOB = SinkIdentity("job a", OPERATOR)
"""Whose output it is, unless a test says otherwise."""


class SinkContract(ABC):
    """Tests over sinks made by `new_sink`, which all write to one target of the test.

    A crash is played by going on with a new sink object, without closing what came before.
    """

    @abstractmethod
    def new_sink(self) -> Sink:
        """A sink as a new process would make it; called several times a test."""

    @abstractmethod
    def visible(self, sink: Sink) -> list[Any]:
        """The records that readers of the target see, in order."""

    @abstractmethod
    def pending(self) -> list[str]:
        """The names of pending outputs at the target; empty for sinks whose handles hold it all."""

    @pytest.fixture(autouse=True)
    def _crashed_writers(self) -> Iterator[None]:
        """Keeps writers that a test leaves open, as a crash does, and closes them after it."""
        self._writers: list[SinkWriter] = []
        yield
        for writer in self._writers:
            writer.close()
        gc.collect()

    def add_strangers(self) -> list[str]:
        """Put things of others where pending output is, as file systems and people do; their names.

        Sinks whose handles hold it all have no such place.
        """
        return []

    def writer(
        self, sink: Sink, subtask: int = 0, generation: int = 1, identity: SinkIdentity = JOB
    ) -> SinkWriter:
        context = SinkContext(identity, OPERATOR, subtask, parallelism=2, generation=generation)
        in_worker: Sink = pickle.loads(pickle.dumps(sink))
        writer = in_worker.open_writer(context)
        self._writers.append(writer)
        return writer

    def prepared(self, writer: SinkWriter, checkpoint_id: int, *rows: Any) -> list[Handle]:
        """Durable handles for the rows, as they come back from a checkpoint."""
        writer.write(Rows(list(rows)))
        return self.finished(writer, checkpoint_id)

    def finished(self, writer: SinkWriter, checkpoint_id: int) -> list[Handle]:
        prepared = writer.prepare(checkpoint_id)
        stored = msgpack.packb(prepared.handles)
        if prepared.finish is not None:
            prepared.finish()
        handles: list[Handle] = msgpack.unpackb(stored)
        return handles

    def test_nothing_is_visible_before_the_commit_and_everything_after(self) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1), row(2))
        assert self.visible(sink) == []
        sink.commit(handles)
        assert self.visible(sink) == [row(1), row(2)]

    def test_rows_and_columns_come_out_alike(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        writer.write(Rows([row(1)]))
        writer.write(Columns(pa.RecordBatch.from_pylist([row(2), row(3)])))
        sink.commit(self.finished(writer, 1))
        assert self.visible(sink) == [row(1), row(2), row(3)]

    def test_committing_twice_changes_nothing(self) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        sink.commit(handles)
        sink.commit(handles)
        assert self.visible(sink) == [row(1)]

    def test_a_commit_that_crashed_halfway_is_completed_by_the_next(self) -> None:
        sink = self.new_sink()
        first = self.prepared(self.writer(sink, 0), 1, row(1))
        second = self.prepared(self.writer(sink, 1), 1, row(2))
        sink.commit(first)
        sink = self.after_crash(sink)
        sink.commit([*first, *second])
        assert self.visible(sink) == [row(1), row(2)]

    def test_a_crash_between_snapshot_and_commit_loses_nothing(self) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        sink = self.after_crash(sink)
        sink.commit(handles)
        sink.discard_uncommitted(handles, JOB, 2)
        assert self.visible(sink) == [row(1)]

    def test_output_that_was_never_prepared_is_never_visible(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        handles = self.prepared(writer, 1, row(1))
        writer.write(Rows([row(2)]))
        sink.commit(handles)
        writer.close()
        assert self.visible(sink) == [row(1)]
        assert self.pending() == []

    def test_what_is_written_after_a_snapshot_is_not_committed_with_it(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        first = self.prepared(writer, 1, row(1))
        second = self.prepared(writer, 2, row(2))
        sink.commit(first)
        assert self.visible(sink) == [row(1)]
        sink.commit(second)
        assert self.visible(sink) == [row(1), row(2)]

    def test_replayed_records_appear_once_after_a_restore(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        completed = self.prepared(writer, 1, row(1))
        self.prepared(writer, 2, row(2))
        writer.write(Rows([row(3)]))
        sink = self.after_crash(sink)
        sink.commit(completed)
        sink.discard_uncommitted(completed, JOB, 2)
        replay = self.prepared(self.writer(sink, generation=2), 3, row(2), row(3))
        sink.commit(replay)
        assert self.visible(sink) == [row(1), row(2), row(3)]

    def test_discarding_removes_exactly_what_no_checkpoint_refers_to(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        committed = self.prepared(writer, 1, row(1))
        sink.commit(committed)
        waiting = self.prepared(writer, 2, row(2))
        kept = self.pending()
        self.prepared(writer, 3, row(3))
        writer.write(Rows([row(4)]))
        sink = self.after_crash(sink)
        sink.discard_uncommitted([*committed, *waiting], JOB, 2)
        assert self.pending() == kept
        sink.commit(waiting)
        assert self.visible(sink) == [row(1), row(2)]

    def test_a_start_without_a_checkpoint_discards_all_pending_output(self) -> None:
        sink = self.new_sink()
        self.prepared(self.writer(sink), 1, row(1))
        sink = self.after_crash(sink)
        sink.discard_uncommitted([], JOB, 2)
        assert self.pending() == []
        assert self.visible(sink) == []

    def test_a_coordinator_that_was_replaced_discards_nothing_of_its_successor(self) -> None:
        sink = self.new_sink()
        self.prepared(self.writer(sink, generation=1), 1, row(1))
        successors = self.prepared(self.writer(sink, generation=2), 2, row(2))
        kept = self.pending()
        sink.discard_uncommitted([], JOB, before_generation=2)
        assert len(self.pending()) < len(kept) or kept == []
        sink.discard_uncommitted([], JOB, before_generation=1)
        sink.commit(successors)
        assert self.visible(sink) == [row(2)]

    @pytest.mark.parametrize(
        "other",
        [
            SinkIdentity("job b", OPERATOR),
            SinkIdentity("job a", "out-2"),
            SinkIdentity("", OPERATOR),
        ],
        ids=["another job", "another sink of the job", "a run without checkpoints"],
    )
    def test_jobs_in_one_place_leave_each_other_alone(self, other: SinkIdentity) -> None:
        """They may look alike in all but their identity: operator, subtask, generation, checkpoint."""
        sink = self.new_sink()
        running = self.writer(sink)
        waiting = self.prepared(running, 1, row(1))
        running.write(Rows([row(2)]))
        newcomer = self.new_sink()
        newcomer.discard_uncommitted([], other, before_generation=9)
        theirs = self.prepared(self.writer(newcomer, identity=other), 1, row(3))
        newcomer.commit(theirs)
        newcomer.discard_uncommitted(theirs, other, before_generation=9)
        assert self.visible(sink) == [row(3)]
        waiting += self.finished(running, 2)
        sink = self.after_crash(sink)
        sink.commit_restored(waiting)
        sink.discard_uncommitted(waiting, JOB, before_generation=2)
        assert sorted(self.visible(sink), key=_id) == [row(1), row(2), row(3)]
        assert self.pending() == []

    def test_a_job_that_goes_on_from_the_savepoint_of_another_leaves_the_rest_of_it_alone(
        self,
    ) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        saved = self.prepared(writer, 1, row(1))
        later = self.prepared(writer, 2, row(2))
        fork = self.new_sink()
        fork.commit_restored(saved)
        fork.discard_uncommitted(saved, SinkIdentity("job b", OPERATOR), before_generation=9)
        sink.commit([*saved, *later])
        assert self.visible(sink) == [row(1), row(2)]

    def test_what_strangers_put_beside_pending_output_stays_and_does_no_harm(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        handles = self.prepared(writer, 1, row(1))
        self.prepared(writer, 2, row(2))
        strangers = self.add_strangers()
        sink = self.after_crash(sink)
        sink.commit_restored(handles)
        sink.discard_uncommitted(handles, JOB, before_generation=2)
        assert self.visible(sink) == [row(1)]
        assert self.pending() == strangers

    def test_a_handle_that_was_tampered_with_is_refused_or_does_nothing(self) -> None:
        """Whoever can write a checkpoint must not reach what is none of the sink's: see `crafted`."""
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        before = self.pending()
        for crafted in (fake for handle in handles for fake in self.crafted(handle)):
            with suppress(Exception):
                sink.commit([crafted])
            with suppress(Exception):
                sink.commit_restored([crafted])
            with suppress(Exception):
                sink.discard_uncommitted([crafted], SinkIdentity("job b", OPERATOR), 9)
            assert self.visible(sink) == []
            assert self.pending() == before
        sink.commit(handles)
        assert self.visible(sink) == [row(1)]

    def crafted(self, handle: Handle) -> Iterator[Handle]:
        """The handle, with each value that looks like a path bent to somewhere else, and without it."""
        for name, value in handle.items():
            if isinstance(value, str) and "/" in value:
                for bent in _bent(value):
                    yield {**handle, name: bent}
                yield {other: kept for other, kept in handle.items() if other != name}

    def test_an_empty_snapshot_leaves_nothing_behind(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        writer.write(Rows([]))
        assert self.finished(writer, 1) == []
        sink.commit([])
        assert self.visible(sink) == []
        assert self.pending() == []

    def test_subtasks_commit_side_by_side(self) -> None:
        sink = self.new_sink()
        handles = [
            handle
            for subtask in (0, 1)
            for handle in self.prepared(self.writer(sink, subtask), 1, row(subtask))
        ]
        sink.commit(handles)
        assert self.visible(sink) == [row(0), row(1)]

    def test_validates(self) -> None:
        self.new_sink().validate()

    def after_crash(self, sink: Sink) -> Sink:
        """The sink of the process that takes over."""
        return self.new_sink()


def _bent(path: str) -> Iterator[Any]:
    folder, _, name = path.rpartition("/")
    yield from ("", "/", "x", "/etc/passwd", f"{folder}/../{name}", f"{folder}/../../{name}")
    yield from (
        f"/etc{path}",
        f"{path}/",
        f"{path}\n",
        f"{path}\0",
        f"{folder}/x/{name}",
        f"../{path}",
    )
    yield from (f"{folder}/x-1-y", f"{folder}/{name}x/y", None, 5, [path], path.encode())


def _id(row: dict[str, Any]) -> Any:
    return row["id"]


def row(number: int) -> dict[str, Any]:
    """A record that every sink can hold."""
    return {"id": number, "name": f"row {number}"}
