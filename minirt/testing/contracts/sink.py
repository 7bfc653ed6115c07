"""What every sink that commits in two phases must keep to; the tests of a sink inherit these."""

from __future__ import annotations

import gc
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from minirt.data.batch import Columns, Rows
from minirt.io import Handle, Sink, SinkContext, SinkWriter

OPERATOR = "out"


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

    def writer(self, sink: Sink, subtask: int = 0, generation: int = 1) -> SinkWriter:
        context = SinkContext(OPERATOR, subtask, parallelism=2, generation=generation)
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
        sink.discard_uncommitted(handles, OPERATOR)
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
        sink.discard_uncommitted(completed, OPERATOR)
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
        sink.discard_uncommitted([*committed, *waiting], OPERATOR)
        assert self.pending() == kept
        sink.commit(waiting)
        assert self.visible(sink) == [row(1), row(2)]

    def test_a_start_without_a_checkpoint_discards_all_pending_output(self) -> None:
        sink = self.new_sink()
        self.prepared(self.writer(sink), 1, row(1))
        sink = self.after_crash(sink)
        sink.discard_uncommitted([], OPERATOR)
        assert self.pending() == []
        assert self.visible(sink) == []

    def test_a_coordinator_that_was_replaced_discards_nothing_of_its_successor(self) -> None:
        sink = self.new_sink()
        self.prepared(self.writer(sink, generation=1), 1, row(1))
        successors = self.prepared(self.writer(sink, generation=2), 2, row(2))
        kept = self.pending()
        sink.discard_uncommitted([], OPERATOR, before_generation=2)
        assert len(self.pending()) < len(kept) or kept == []
        sink.discard_uncommitted([], OPERATOR, before_generation=1)
        sink.commit(successors)
        assert self.visible(sink) == [row(2)]

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


def row(number: int) -> dict[str, Any]:
    """A record that every sink can hold."""
    return {"id": number, "name": f"row {number}"}
