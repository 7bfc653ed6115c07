"""The kit for sinks: it passes those that are right, and finds each planted mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

import minirt as rt
from minirt.errors import SupersededError
from minirt.io.base import Committable, CommitterContext, Handle, Sink, SinkCommitter
from minirt.io.ledger import LedgerCommitter, LedgerEntry, LedgerTransaction, StagedPiece
from minirt.testing import TransactionalSink
from minirt.testing.sinks import FakeSystemSink, FakeTrial, SinkTrial, check_sink
from minirt.testing.sinks.fake_system import FakeConnection
from minirt.testing.sinks.lives import Life, draw_life
from minirt.testing.sinks.shrink import shrink
from minirt.testing.sinks.world import play


class FileTrial(SinkTrial):
    def __init__(self, folder: Path, kind: type[rt.JsonlSink | rt.ParquetSink]) -> None:
        self._folder = folder
        self._kind = kind
        self._lives = 0

    def begin(self) -> None:
        self._lives += 1

    def sink(self) -> Sink:
        return self._kind(self._folder / str(self._lives), existing="append")

    def visible(self) -> Sequence[int]:
        import pyarrow.parquet as pq

        ids: list[int] = []
        for path in (self._folder / str(self._lives)).glob("part-*"):
            if path.suffix == ".jsonl":
                ids += [json.loads(line)["id"] for line in path.read_text().splitlines()]
            else:
                ids += pq.read_table(path).column("id").to_pylist()
        return ids


class MemoryTrial(SinkTrial):
    """Sinks whose one instance is the place."""

    def __init__(self, kind: type[rt.CollectSink | TransactionalSink]) -> None:
        self._kind = kind

    def begin(self) -> None:
        self._sink = self._kind()

    def sink(self) -> Sink:
        return self._sink

    def visible(self) -> Sequence[int]:
        return [row["id"] for row in self._sink.rows]


def test_a_ledger_sink_passes() -> None:
    check_sink(FakeTrial(), runs=600)


@pytest.mark.parametrize("kind", [rt.JsonlSink, rt.ParquetSink])
def test_file_sinks_pass(tmp_path: Path, kind: Any) -> None:
    check_sink(FileTrial(tmp_path, kind), runs=40)


@pytest.mark.parametrize("kind", [rt.CollectSink, TransactionalSink])
def test_sinks_in_memory_pass(kind: Any) -> None:
    check_sink(MemoryTrial(kind), runs=150)


# Planted mistakes.


class TwoTransactions(LedgerCommitter):
    """Records are committed first, the ledger after that."""

    def commit(self, committables: Sequence[Committable]) -> None:
        with self._transaction() as transaction:
            known = self._checked(transaction.entry(self._owner))
            new = [one for one in committables if one.checkpoint_id > known.checkpoint_id]
            for one in new:
                path = f"{one.handle['owner']}/{one.handle['piece']}"
                transaction.write(self._staging.read(path))
        with self._transaction() as transaction:
            if new:
                newest = max(one.checkpoint_id for one in new)
                transaction.record(self._owner, LedgerEntry(newest, self._generation, 99))


class LedgerFirst(FakeConnection):
    """The ledger is written at once, whatever becomes of the records."""

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        with super().transaction() as transaction:

            def record(owner: str, entry: LedgerEntry) -> None:
                self._system.ledger[owner] = entry

            transaction.record = record  # type: ignore[method-assign]
            yield transaction


class NoLedger(LedgerCommitter):
    """Writes whatever comes."""

    def _write(self, transaction: Any, known: Any, pieces: Any) -> None:
        super()._write(transaction, LedgerEntry(0, known.generation, 0), pieces)


class OnlyTheSame(LedgerCommitter):
    """Leaves out a checkpoint that is repeated, but not an older one."""

    def _write(self, transaction: Any, known: Any, pieces: Any) -> None:
        new = [piece for piece in pieces if piece.checkpoint_id != known.checkpoint_id]
        entry = LedgerEntry(0, known.generation, known.written_by)
        super()._write(transaction, entry, new)


class NewestOnly(LedgerCommitter):
    """Forgets what failed checkpoints have left."""

    def _write(self, transaction: Any, known: Any, pieces: Any) -> None:
        newest = max(piece.checkpoint_id for piece in pieces)
        new = [piece for piece in pieces if piece.checkpoint_id == newest]
        super()._write(transaction, known, new)


class Unfenced(LedgerCommitter):
    """Takes any generation for the current one."""

    def _checked(self, entry: LedgerEntry | None) -> LedgerEntry:
        return entry or LedgerEntry()


class InItsOwnName(LedgerCommitter):
    """Takes what another job has prepared for its own."""

    def commit(self, committables: Sequence[Committable]) -> None:
        with self._transaction() as transaction:
            own = self._checked(transaction.entry(self._owner))
            new = [one for one in committables if one.checkpoint_id > own.checkpoint_id]
            for one in new:
                path = f"{one.handle['owner']}/{one.handle['piece']}"
                transaction.write(self._staging.read(path))
            if new:
                newest = max(one.checkpoint_id for one in new)
                transaction.record(self._owner, LedgerEntry(newest, self._generation, 1))


class RemovesFirst(LedgerCommitter):
    """Removes what is staged before the commit is sure."""

    def commit(self, committables: Sequence[Committable]) -> None:
        with self._transaction() as transaction:
            known = self._checked(transaction.entry(self._owner))
            new = [one for one in committables if one.checkpoint_id > known.checkpoint_id]
            for one in new:
                path = f"{one.handle['owner']}/{one.handle['piece']}"
                transaction.write(self._staging.read(path))
                self._remove([path])
            if new:
                newest = max(one.checkpoint_id for one in new)
                transaction.record(self._owner, LedgerEntry(newest, self._generation, 99))


class DiscardsAll(LedgerCommitter):
    """Discards what waits for a commit as well."""

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        for path in self._staging.list(self._owner):
            self._remove([path])


class DiscardsLater(LedgerCommitter):
    """Discards also what writers of later generations have staged."""

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        keep = {f"{one['owner']}/{one['piece']}" for one in committed}
        for path in self._staging.list(self._owner):
            if path not in keep:
                self._remove([path])


class NoWayOn(LedgerCommitter):
    """Looks for output that was refused in each later generation, and does not open without it."""

    refused: ClassVar[list[str]] = []

    def __init__(self, connect: Any, context: CommitterContext) -> None:
        super().__init__(connect, context)
        if missing := [
            path for path in self.refused if path not in self._staging.list(self._owner)
        ]:
            self.refused.clear()
            raise rt.SinkDataError(f"{missing[0]} waits, and is not there")

    def commit(self, committables: Sequence[Committable]) -> None:
        try:
            super().commit(committables)
        except rt.SinkDataError:
            staged = [StagedPiece.parse(one).path for one in committables]
            self.refused.extend(path for path in staged if path in self._staging.list(self._owner))
            raise

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        super().discard_uncommitted(committed)
        if any(path not in self._staging.list(self._owner) for path in self.refused):
            self.refused.clear()
            raise rt.SinkDataError("output that was refused is gone")


def planted(mistake: type) -> FakeTrial:
    """A trial of a sink with the mistake."""

    class Mistaken(FakeSystemSink):
        def connect(self) -> Any:
            if issubclass(mistake, FakeConnection):
                return mistake(self.system)
            return super().connect()

        def open_committer(self, context: CommitterContext) -> SinkCommitter:
            if issubclass(mistake, LedgerCommitter):
                return mistake(self.connect, context)
            return super().open_committer(context)

    return FakeTrial(Mistaken)


MISTAKES = [
    TwoTransactions,
    LedgerFirst,
    NoLedger,
    OnlyTheSame,
    NewestOnly,
    Unfenced,
    InItsOwnName,
    RemovesFirst,
    DiscardsAll,
    DiscardsLater,
    NoWayOn,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_planted_mistake_is_found(mistake: type) -> None:
    with pytest.raises(AssertionError, match="what is wrong"):
        check_sink(planted(mistake), runs=600)


def test_a_life_can_be_replayed_and_is_made_small() -> None:
    trial = planted(OnlyTheSame)
    failed = next(out for seed in range(500) if (out := play(draw_life(seed), trial)).wrong)
    again = play(Life.from_token(failed.life.token), trial)
    assert (again.trace, again.wrong) == (failed.trace, failed.wrong)
    smallest = shrink(failed, trial)
    assert smallest.wrong
    assert len(smallest.life.steps) <= 4
    assert play(Life.from_token(smallest.life.token), trial).wrong == smallest.wrong


def test_what_is_no_token_is_refused() -> None:
    with pytest.raises(rt.ConfigurationError, match="no token"):
        Life.from_token("rubbish")


def test_the_fence_holds_before_anything_is_committed() -> None:
    trial = FakeTrial()
    from minirt.testing.sinks.trial import Fault, FaultyStaging

    staging = FaultyStaging({}, Fault(None, "", print))
    identity = rt.SinkIdentity("job", "out")
    old = trial.sink().open_committer(CommitterContext(identity, "out", 1, staging))
    trial.sink().open_committer(CommitterContext(identity, "out", 2, staging))
    handle = {"root": staging.root, "owner": identity.name, "piece": "00000-0001-0000-01234567"}
    with pytest.raises(SupersededError):
        old.commit([Committable(1, handle)])
    with pytest.raises(SupersededError):
        trial.sink().open_committer(CommitterContext(identity, "out", 1, staging))
