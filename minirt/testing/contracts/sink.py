"""What every sink that commits in two phases must keep to; the tests of a sink inherit these."""

from __future__ import annotations

import gc
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from minirt.data.batch import Columns, Rows
from minirt.errors import ConfigurationError, SinkDataError, SupersededError
from minirt.io import (
    Committable,
    CommitterContext,
    Handle,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkIdentity,
    SinkWriter,
    Staging,
)
from minirt.io.base import commits_by_itself
from minirt.testing.identities import played

OPERATOR = "out"

JOB = played("job a", OPERATOR)
"""Whose output it is, unless a test says otherwise."""


class SinkContract(ABC):
    """Tests over sinks made by `new_sink`, which all write to one target of the test.

    A crash is played by going on with a new sink object, without closing what came before.
    """

    shows_again: bool = True
    """Whether records that a second run writes from the beginning show beside those of the first."""

    @abstractmethod
    def new_sink(self) -> Sink:
        """A sink as a new process would make it; called several times a test."""

    @abstractmethod
    def visible(self, sink: Sink) -> list[Any]:
        """The records that readers of the target see, in order."""

    @abstractmethod
    def pending(self) -> list[str]:
        """The names of pending outputs at the target; empty for sinks whose handles hold it all."""

    def never_taken(self) -> Iterable[Any]:
        """Records that the target takes in no commit, whatever is done about it.

        Empty for a target that takes all of them.
        """
        return ()

    @pytest.fixture(autouse=True)
    def _crashed_writers(self) -> Iterator[None]:
        """Keeps writers that a test leaves open, as a crash does, and closes them after it."""
        self._writers: list[SinkWriter] = []
        self._committers: dict[tuple[int, SinkIdentity, int], tuple[Sink, SinkCommitter]] = {}
        self._checkpoints: dict[str, int] = {}
        """By handle, the checkpoint that it was prepared for."""
        yield
        for writer in self._writers:
            writer.close()
        for _, committer in self._committers.values():
            committer.close()
        gc.collect()

    def staging(self) -> Staging | None:
        """Where output may wait beside checkpoints, for sinks that ask for it."""
        return None

    def add_strangers(self) -> list[str]:
        """Put things of others where pending output is, as file systems and people do; their names.

        Sinks whose handles hold it all have no such place.
        """
        return []

    def writer(
        self, sink: Sink, subtask: int = 0, generation: int = 1, identity: SinkIdentity = JOB
    ) -> SinkWriter:
        context = SinkContext(identity, OPERATOR, subtask, 2, generation, self.staging())
        in_worker: Sink = pickle.loads(pickle.dumps(sink))
        writer = in_worker.open_writer(context)
        self._writers.append(writer)
        return writer

    def commit(self, sink: Sink, handles: Sequence[Handle]) -> None:
        """As the coordinator of the newest generation of the job does."""
        own = [generation for _, identity, generation in self._committers if identity == JOB]
        committer = self._committer(sink, JOB, max(own, default=1))
        committer.commit(self._committables(handles))

    def commit_restored(
        self,
        sink: Sink,
        handles: Sequence[Handle],
        identity: SinkIdentity = JOB,
        generation: int = 1,
    ) -> None:
        """As the coordinator of a later start does."""
        committer = self._committer(sink, identity, generation)
        committer.commit_restored(self._committables(handles))

    def discard_uncommitted(
        self,
        sink: Sink,
        handles: Sequence[Handle],
        identity: SinkIdentity,
        before_generation: int,
    ) -> None:
        """As the coordinator of a later generation does, at its start; one that is too late may refuse."""
        with suppress(SupersededError):
            committer = self._committer(sink, identity, before_generation)
            committer.discard_uncommitted(handles)

    def _committer(
        self, sink: Sink, identity: SinkIdentity = JOB, generation: int = 1
    ) -> SinkCommitter:
        """What commits in a coordinator of this generation: one for each process that has the sink."""
        key = (id(sink), identity, generation)
        if key not in self._committers:
            context = CommitterContext(identity, OPERATOR, generation, self.staging())
            self._committers[key] = (sink, sink.open_committer(context))
        return self._committers[key][1]

    def _committables(self, handles: Sequence[Handle]) -> list[Committable]:
        return [Committable(self._checkpoints.get(repr(one), 1), one) for one in handles]

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
        self._checkpoints |= {repr(handle): checkpoint_id for handle in handles}
        return handles

    def test_a_second_run_from_the_beginning_is_told_or_refused(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        if not self.shows_again:
            pytest.skip("a second run replaces what the first has written, or cannot see it")
        sink = self.new_sink()
        sink.on_fresh_start()
        assert not caplog.records
        self.commit(sink, self.prepared(self.writer(sink), 1, row(1)))
        refused = False
        try:
            self.new_sink().on_fresh_start()
        except ConfigurationError:
            refused = True
        assert refused or caplog.records, (
            "on_fresh_start must warn, or raise ConfigurationError, where there is output already"
        )

    def test_nothing_is_visible_before_the_commit_and_everything_after(self) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1), row(2))
        assert self.visible(sink) == []
        self.commit(sink, handles)
        assert self.visible(sink) == [row(1), row(2)]

    def test_rows_and_columns_come_out_alike(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        writer.write(Rows([row(1)]))
        writer.write(Columns(pa.RecordBatch.from_pylist([row(2), row(3)])))
        self.commit(sink, self.finished(writer, 1))
        assert self.visible(sink) == [row(1), row(2), row(3)]

    def test_a_record_that_is_never_taken_is_refused_before_a_checkpoint_holds_it(self) -> None:
        """Its commit would fail for ever, and with it each start from that checkpoint."""
        refused = list(self.never_taken())
        if not refused:
            pytest.skip("the target takes all records")
        for record in refused:
            sink = self.new_sink()
            with pytest.raises(SinkDataError, match=OPERATOR):
                self.prepared(self.writer(sink), 1, row(1), record)
        sink = self.after_crash(self.new_sink())
        self.discard_uncommitted(sink, [], JOB, 2)
        self.commit(sink, self.prepared(self.writer(sink, generation=2), 2, row(2)))
        assert self.visible(sink) == [row(2)]
        assert self.pending() == []

    def test_committing_twice_changes_nothing(self) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        self.commit(sink, handles)
        self.commit(sink, handles)
        assert self.visible(sink) == [row(1)]

    def test_a_commit_that_crashed_halfway_is_completed_by_the_next(self) -> None:
        sink = self.new_sink()
        # Where handles are not committed one by one, a commit is over with a whole checkpoint.
        as_one = not commits_by_itself(sink)
        first = self.prepared(self.writer(sink, 0), 1, row(1))
        second = self.prepared(self.writer(sink, 1), 2 if as_one else 1, row(2))
        self.commit(sink, first)
        sink = self.after_crash(sink)
        self.commit(sink, [*first, *second])
        assert self.visible(sink) == [row(1), row(2)]

    def test_a_crash_between_snapshot_and_commit_loses_nothing(self) -> None:
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        sink = self.after_crash(sink)
        self.commit(sink, handles)
        self.discard_uncommitted(sink, handles, JOB, 2)
        assert self.visible(sink) == [row(1)]

    def test_output_that_was_never_prepared_is_never_visible(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        handles = self.prepared(writer, 1, row(1))
        writer.write(Rows([row(2)]))
        self.commit(sink, handles)
        writer.close()
        assert self.visible(sink) == [row(1)]
        assert self.pending() == []

    def test_what_is_written_after_a_snapshot_is_not_committed_with_it(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        first = self.prepared(writer, 1, row(1))
        second = self.prepared(writer, 2, row(2))
        self.commit(sink, first)
        assert self.visible(sink) == [row(1)]
        self.commit(sink, second)
        assert self.visible(sink) == [row(1), row(2)]

    def test_replayed_records_appear_once_after_a_restore(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        completed = self.prepared(writer, 1, row(1))
        self.prepared(writer, 2, row(2))
        writer.write(Rows([row(3)]))
        sink = self.after_crash(sink)
        self.commit(sink, completed)
        self.discard_uncommitted(sink, completed, JOB, 2)
        replay = self.prepared(self.writer(sink, generation=2), 3, row(2), row(3))
        self.commit(sink, replay)
        assert self.visible(sink) == [row(1), row(2), row(3)]

    def test_discarding_removes_exactly_what_no_checkpoint_refers_to(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        committed = self.prepared(writer, 1, row(1))
        self.commit(sink, committed)
        waiting = self.prepared(writer, 2, row(2))
        kept = self.pending()
        self.prepared(writer, 3, row(3))
        writer.write(Rows([row(4)]))
        sink = self.after_crash(sink)
        self.discard_uncommitted(sink, [*committed, *waiting], JOB, 2)
        assert self.pending() == kept
        self.commit(sink, waiting)
        assert self.visible(sink) == [row(1), row(2)]

    def test_a_start_without_a_checkpoint_discards_all_pending_output(self) -> None:
        sink = self.new_sink()
        self.prepared(self.writer(sink), 1, row(1))
        sink = self.after_crash(sink)
        self.discard_uncommitted(sink, [], JOB, 2)
        assert self.pending() == []
        assert self.visible(sink) == []

    def test_output_that_is_given_up_never_shows_and_later_output_does(self) -> None:
        """A restore that gives up what a checkpoint holds discards it, and commits what comes later."""
        sink = self.new_sink()
        self.commit(sink, self.prepared(self.writer(sink), 1, row(1)))
        self.prepared(self.writer(sink), 2, row(2))
        sink = self.after_crash(sink)
        self.discard_uncommitted(sink, [], JOB, 2)
        assert self.pending() == []
        self.commit_restored(
            sink, self.prepared(self.writer(sink, generation=2), 3, row(3)), generation=2
        )
        assert self.visible(sink) == [row(1), row(3)]

    def test_a_coordinator_that_was_replaced_discards_nothing_of_its_successor(self) -> None:
        sink = self.new_sink()
        self.prepared(self.writer(sink, generation=1), 1, row(1))
        successors = self.prepared(self.writer(sink, generation=2), 2, row(2))
        kept = self.pending()
        self.discard_uncommitted(sink, [], JOB, before_generation=2)
        assert len(self.pending()) < len(kept) or kept == []
        self.discard_uncommitted(sink, [], JOB, before_generation=1)
        self.commit(sink, successors)
        assert self.visible(sink) == [row(2)]

    @pytest.mark.parametrize(
        "other",
        [
            played("job b", OPERATOR),
            played("job a", "out-2"),
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
        self.discard_uncommitted(newcomer, [], other, before_generation=9)
        theirs = self.prepared(self.writer(newcomer, identity=other), 1, row(3))
        self.commit_restored(newcomer, theirs, other, 9)
        self.discard_uncommitted(newcomer, theirs, other, before_generation=9)
        assert self.visible(sink) == [row(3)]
        waiting += self.finished(running, 2)
        sink = self.after_crash(sink)
        self.commit_restored(sink, waiting)
        self.discard_uncommitted(sink, waiting, JOB, before_generation=2)
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
        self.commit_restored(fork, saved, played("job b", OPERATOR), 9)
        self.discard_uncommitted(fork, saved, played("job b", OPERATOR), before_generation=9)
        self.commit(sink, [*saved, *later])
        assert self.visible(sink) == [row(1), row(2)]

    def test_what_strangers_put_beside_pending_output_stays_and_does_no_harm(self) -> None:
        sink = self.new_sink()
        writer = self.writer(sink)
        handles = self.prepared(writer, 1, row(1))
        self.prepared(writer, 2, row(2))
        strangers = self.add_strangers()
        sink = self.after_crash(sink)
        self.commit_restored(sink, handles)
        self.discard_uncommitted(sink, handles, JOB, before_generation=2)
        assert self.visible(sink) == [row(1)]
        assert self.pending() == strangers

    def test_a_handle_that_was_tampered_with_is_refused_or_does_nothing(self) -> None:
        """Whoever can write a checkpoint must not reach what is none of the sink's: see `crafted`."""
        sink = self.new_sink()
        handles = self.prepared(self.writer(sink), 1, row(1))
        before = self.pending()
        for crafted in (fake for handle in handles for fake in self.crafted(handle)):
            with suppress(Exception):
                self.commit(sink, [crafted])
            with suppress(Exception):
                self.commit_restored(sink, [crafted])
            with suppress(Exception):
                self.discard_uncommitted(sink, [crafted], played("job b", OPERATOR), 9)
            assert self.visible(sink) == []
            assert self.pending() == before
        self.commit(sink, handles)
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
        self.commit(sink, [])
        assert self.visible(sink) == []
        assert self.pending() == []

    def test_subtasks_commit_side_by_side(self) -> None:
        sink = self.new_sink()
        handles = [
            handle
            for subtask in (0, 1)
            for handle in self.prepared(self.writer(sink, subtask), 1, row(subtask))
        ]
        self.commit(sink, handles)
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
