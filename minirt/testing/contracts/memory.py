"""What sources and sinks with a memory of another system must keep to when that is changed.

A test inherits a contract once for each way of changing it: it says how the first records come about, how
the other side changes, and what then holds. The contract draws how much was committed before, and how much
the other side holds afterwards: less, as much, or more.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from minirt.data.batch import Rows
from minirt.errors import SinkDataError, SourceChangedError, StorageError
from minirt.io import (
    Committable,
    CommitterContext,
    Offset,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    Source,
    Split,
    SplitReader,
    Staging,
)
from minirt.io.remembered import KEY, Identity, planned, resumed
from minirt.testing.contracts.sink import JOB, OPERATOR

BEFORE = 6
"""How many records there are ahead of the change."""

WHO = "source numbers (uid numbers)"


class SourceMemoryContract(ABC):
    """Tests of one way in which the other side of a source is exchanged, or goes back.

    Records are anything; one split is enough. Those of the first world are BEFORE many.
    """

    accept: str = "other"
    """What accepts the change."""

    names: Sequence[str] = ()
    """What the refusal must show, of both sides."""

    while_running: bool = True
    """Whether a reader that is open must notice the change; bounded sources need not."""

    patience_s: float = 0.3
    """For how long a reader is asked for records that may never come."""

    @abstractmethod
    def first(self) -> Source:
        """The source of the first start, over BEFORE records."""

    @abstractmethod
    def change(self, count: int) -> None:
        """Exchange the other side, or set it back: it then holds `count` records, none of the old ones
        behind the place from which it differs."""

    @abstractmethod
    def second(self, accept: Sequence[str]) -> Source:
        """The source of the next start, with this option `accept`."""

    def records_of(self, count: int) -> int | None:
        """How many records come behind the checkpoint of all BEFORE records once the change is accepted;
        None if that is not told."""
        return max(0, count - BEFORE)

    @pytest.mark.parametrize("count", [2, BEFORE, BEFORE + 3])
    def test_a_restore_names_both_sides(self, count: int) -> None:
        stored = self._checkpoint(self.first())
        self.change(count)
        with pytest.raises(SourceChangedError) as raised:
            self._go_on(self.second(()), stored)
        for name in (*self.names, f'accept="{self.accept}"'):
            assert name in str(raised.value)

    @pytest.mark.parametrize("count", [2, BEFORE + 3])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        stored = self._checkpoint(self.first())
        self.change(count)
        records, again = self._go_on(self.second((self.accept,)), stored)
        told = self.records_of(count)
        assert told is None or len(records) == told
        assert self._go_on(self.second(()), again)[0] == []

    def test_what_nothing_is_remembered_of_is_taken_as_it_is(self) -> None:
        """Checkpoints of older versions hold no identity; the next one of the job does."""
        stored = self._checkpoint(self.first())
        older = [(split_of_old(split), self.older(offset)) for split, offset in stored]
        records, again = self._go_on(self.first_again(), older)
        assert records == []
        assert [KEY in split.info for split, _ in again] == [True] * len(again)

    def test_nothing_of_it_is_stored_while_the_job_runs(self) -> None:
        if not self.while_running:
            pytest.skip("what is open is read to its end, and only the next start looks")
        source = self.first()
        splits = planned(source, 1)
        readers = [source.open_split(split, None) for split in splits]
        try:
            for reader in readers:
                drained(reader, self.patience_s)
                reader.verify()
            self.change(BEFORE + 3)
            with pytest.raises(SourceChangedError):
                self._read_on(source, splits, readers)
        finally:
            for reader in readers:
                reader.close()

    def first_again(self) -> Source:
        """The first source as a later start makes it."""
        return self.first_source

    def older(self, offset: Offset) -> Offset:
        """The offset as version 0.1.0 stored it."""
        return offset

    def _read_on(self, source: Source, splits: Sequence[Split], readers: list[SplitReader]) -> None:
        """Read on; where a connection has ended, a restart opens another one."""
        for place, split in enumerate(splits):
            offset = readers[place].offset
            try:
                drained(readers[place], self.patience_s)
            except StorageError:
                readers[place].close()
                readers[place] = source.open_split(split, offset)
                drained(readers[place], self.patience_s)
            readers[place].verify()

    def _checkpoint(self, source: Source) -> list[tuple[Split, Offset]]:
        """Read all, and give splits and offsets as they come back from storage."""
        self.first_source = source
        return self._read(source, [(split, None) for split in planned(source, 1)], BEFORE)[1]

    def _go_on(
        self, source: Source, stored: Sequence[tuple[Split, Offset]]
    ) -> tuple[list[Any], list[tuple[Split, Offset]]]:
        found = source.identity()
        taken = [resumed(WHO, source, split, offset, found) for split, offset in stored]
        return self._read(source, taken)

    def _read(
        self, source: Source, splits: Sequence[tuple[Split, Offset]], expected: int | None = None
    ) -> tuple[list[Any], list[tuple[Split, Offset]]]:
        records: list[Any] = []
        after = []
        for split, offset in splits:
            reader = source.open_split(split, offset)
            try:
                records += drained(reader, self.patience_s)
                reader.verify()
                plain = msgpack.packb([split.id, dict(split.info), reader.offset])
            finally:
                reader.close()
            id, info, position = msgpack.unpackb(plain)
            after.append((Split(id, info), position))
        assert expected is None or len(records) == expected
        return records, after


def split_of_old(split: Split) -> Split:
    """The split as version 0.1.0 stored it: without an identity."""
    return Split(split.id, {name: value for name, value in split.info.items() if name != KEY})


def drained(reader: SplitReader, patience_s: float) -> list[Any]:
    """All records that come until the end, or until none has come for so long."""
    records: list[Any] = []
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        batch = reader.read()
        if batch is None:
            break
        if len(batch):
            records += batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
            until = time.monotonic() + patience_s
        else:
            time.sleep(0.01)
    return records


class SinkMemoryContract(ABC):
    """Tests of a sink with a ledger whose system goes back, together with its ledger."""

    @abstractmethod
    def new_sink(self, accept: Sequence[str]) -> Sink:
        """A sink with this option `accept`, as a new process would make it; all write to one place."""

    @abstractmethod
    def staging(self) -> Staging:
        """Where output waits: the same in each call."""

    @abstractmethod
    def keep(self) -> None:
        """Keep a copy of the place, as it is now, or note where it is."""

    @abstractmethod
    def go_back(self) -> None:
        """Set the place back to what was kept: records and ledger."""

    @abstractmethod
    def visible(self) -> list[Any]:
        """The ids of the records that readers see, in order."""

    lost: Sequence[int] = (1, 2)
    """How many of two checkpoints the place can lose: with 2, it knows nothing any more."""

    stages: bool = True
    """Whether output waits in the staging, from which a commit removes it."""

    @pytest.fixture(autouse=True)
    def _opened(self) -> Iterator[None]:
        self._writers: list[SinkWriter] = []
        self._committers: list[SinkCommitter] = []
        yield
        for writer in self._writers:
            writer.close()
        for committer in self._committers:
            committer.close()

    @pytest.mark.parametrize("lost", [1, 2])
    def test_a_commit_behind_what_is_lost_names_both_sides(self, lost: int) -> None:
        sink = self._after_a_loss(lost, ())
        before = self.visible()
        with pytest.raises(SinkDataError) as raised:
            self._commit(sink, 3)
        self._check_names(str(raised.value), lost)
        assert self.visible() == before

    @pytest.mark.parametrize("lost", [1, 2])
    def test_a_start_behind_what_is_lost_names_both_sides(self, lost: int) -> None:
        self._after_a_loss(lost, ())
        with pytest.raises(SinkDataError) as raised:
            self._open(self.new_sink(()), generation=2, committed=2)
        self._check_names(str(raised.value), lost)

    @pytest.mark.parametrize("lost", [1, 2])
    def test_a_start_that_knows_less_finds_that_what_was_committed_is_not_staged_any_more(
        self, lost: int
    ) -> None:
        """The newest checkpoint may have been committed, and nobody was left to note that."""
        if not self.stages:
            pytest.skip("the system itself tells that this output was committed")
        self._after_a_loss(lost, ())
        with pytest.raises(SinkDataError) as raised:
            self._restore(committed=1)
        self._check_names(str(raised.value), lost, of=None)

    @pytest.mark.parametrize("lost", [1, 2])
    def test_the_loss_can_be_accepted(self, lost: int) -> None:
        sink = self._after_a_loss(lost, ("behind",))
        there = self.visible()
        self._commit(sink, 3)
        assert self.visible() == [*there, 3]
        sink = self.new_sink(())
        self._open(sink, generation=2, committed=3).commit_restored([])
        self._commit(sink, 4, generation=2)
        assert self.visible() == [*there, 3, 4]

    @pytest.mark.parametrize("lost", [1, 2])
    @pytest.mark.parametrize("committed", [1, 2])
    def test_the_loss_can_be_accepted_at_a_start(self, lost: int, committed: int) -> None:
        self._after_a_loss(lost, ())
        there = self.visible()
        sink = self._restore(committed, ("behind",))
        self._commit(sink, 3, generation=2)
        assert self.visible() == [*there, 3]

    def test_who_knows_of_no_commit_takes_the_ledger_as_it_is(self) -> None:
        """As of checkpoints of older versions, which do not tell what was committed."""
        self._after_a_loss(1, ())
        sink = self.new_sink(())
        self._open(sink, generation=2, committed=0)
        there = self.visible()
        self._commit(sink, 3, generation=2)
        assert self.visible() == [*there, 3]

    @pytest.mark.parametrize("accept", [(), ("other",)], ids=["refused", "accepted"])
    def test_output_that_waits_is_not_written_into_another_target(
        self, accept: Sequence[str]
    ) -> None:
        if not self.stages:
            pytest.skip("the output is with its target already")
        first = self._named(self.new_sink(()), "first")
        self._open(first, generation=1, committed=0)
        waiting = self._prepared(first, 1, generation=1)
        second = self._named(self.new_sink(accept), "second")
        committer = self._open(second, generation=2, committed=0)
        if accept:
            committer.commit_restored(waiting)
            assert self.visible() == [1]
            return
        with pytest.raises(SinkDataError, match="table first, but this is the table second"):
            committer.commit_restored(waiting)
        assert self.visible() == []

    def _named(self, sink: Sink, name: str) -> Sink:
        """The sink, which calls its target so."""
        sink.target = lambda: Identity("table", name)  # type: ignore[attr-defined]
        return sink

    def _after_a_loss(self, lost: int, accept: Sequence[str]) -> Sink:
        if lost not in self.lost:
            pytest.skip("the place cannot lose that")
        sink = self.new_sink(accept)
        if lost == 2:
            self.keep()
        self._open(sink, generation=1, committed=0)
        self._commit(sink, 1)
        if lost == 1:
            self.keep()
        self._second = self._commit(sink, 2)
        self.go_back()
        return sink

    def _restore(self, committed: int, accept: Sequence[str] = ()) -> Sink:
        """Start from the second checkpoint, of which the job knows that so much was committed."""
        sink = self.new_sink(accept)
        committer = self._open(sink, generation=2, committed=committed)
        committer.commit_restored(self._second)
        return sink

    def _check_names(self, text: str, lost: int, of: int | None = 2) -> None:
        found = "knows checkpoint 1" if lost == 1 else "knows "
        for part in ("checkpoint 2" if of else "checkpoint", found, "ledger", 'accept="behind"'):
            assert part in text

    def _open(self, sink: Sink, generation: int, committed: int) -> SinkCommitter:
        context = CommitterContext(JOB, OPERATOR, generation, self.staging(), committed)
        committer = sink.open_committer(context)
        self._committers.append(committer)
        return committer

    def _commit(self, sink: Sink, number: int, generation: int = 1) -> list[Committable]:
        """Write one record in a checkpoint, and commit that with the committer opened last."""
        committables = self._prepared(sink, number, generation)
        try:
            self._committers[-1].commit(committables)
        except StorageError:  # A connection may have ended; the coordinator commits again.
            self._committers[-1].commit(committables)
        return committables

    def _prepared(self, sink: Sink, number: int, generation: int) -> list[Committable]:
        """Write one record, and have it wait for its commit."""
        context = SinkContext(JOB, OPERATOR, 0, 1, generation, self.staging())
        writer = sink.open_writer(context)
        self._writers.append(writer)
        writer.write(Rows([{"id": number, "name": f"row {number}"}]))
        prepared = writer.prepare(number)
        if prepared.finish is not None:
            prepared.finish()
        handles = msgpack.unpackb(msgpack.packb(prepared.handles))
        return [Committable(number, handle) for handle in handles]
