"""Sinks as a simulated coordinator deals with them: every call can fail, or be its last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minirt.errors import SupersededError
from minirt.io.base import (
    Committable,
    CommitterContext,
    Handle,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    commits_by_itself,
)
from minirt.testing.faults import ProcessDiedError
from minirt.testing.storage import Gate


class GatedSink(Sink):
    """A sink whose commits can fail, and be the last thing that its process did."""

    def __init__(self, sink: Sink, gate: Gate, problem: Callable[[str], None]) -> None:
        self._sink = sink
        self._gate = gate
        self._problem = problem

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return self._sink.open_writer(context)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        # Of a sink that commits handles by themselves, a crash may fall between any two.
        one_by_one = commits_by_itself(self._sink)
        if not one_by_one:
            self._gate.before("open a committer")
        committer = self._sink.open_committer(context)
        if not one_by_one:
            self._gate.after("open a committer")
        return _GatedCommitter(committer, self._gate, self._problem, one_by_one=one_by_one)


class _GatedCommitter(SinkCommitter):
    def __init__(
        self,
        committer: SinkCommitter,
        gate: Gate,
        problem: Callable[[str], None],
        *,
        one_by_one: bool,
    ) -> None:
        self._committer = committer
        self._gate = gate
        self._problem = problem
        self._one_by_one = one_by_one

    def commit(self, committables: Sequence[Committable]) -> None:
        pieces = [[one] for one in committables] if self._one_by_one else [committables]
        for piece in pieces:
            self._gate.before("commit a handle")
            self._expect(lambda piece=piece: self._committer.commit(piece))  # type: ignore[misc]
            self._gate.after("commit a handle")

    def commit_restored(self, committables: Sequence[Committable]) -> None:
        self.commit(committables)
        self._expect(lambda: self._committer.commit_restored(committables))

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        self._gate.before("discard uncommitted output")
        self._committer.discard_uncommitted(committed)
        self._gate.after("discard uncommitted output")

    def close(self) -> None:
        self._committer.close()

    def _expect(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (ProcessDiedError, SupersededError):
            raise
        except Exception as error:
            # Others may refuse who was replaced; of a current coordinator, the failure is told elsewhere.
            if self._one_by_one:
                self._problem(f"commit failed: {error}")
            raise
