"""Whether a completed checkpoint is a consistent cut of a random job.

Every record has exactly one place in a checkpoint: behind the position of its source, in flight in
front of some operator, or in the effects of the operators that it has passed. So the records before
the stored positions are followed through the plan. What is stored as in flight in front of an operator
has not been consumed by it; what it has consumed must be exactly what its state shows, and what has
come through to a sink must be exactly what is committed or waits for its commit. Checkpoints are read
from their bytes, and no code is shared with what takes and restores them.

For a mode that promises at least once, the same way yields what must be there at least.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minirt.testing.conformance.graphs import Job
from minirt.testing.conformance.oracle import arriving, copies_to
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.stages import kind_of
from minirt.testing.conformance.stages.base import (
    BACK,
    LAID,
    MORE,
    CutOf,
    Record,
    Records,
    some,
)
from minirt.testing.conformance.stored import StoredCheckpoint
from minirt.testing.sink import TransactionalSink


class CutChecker:
    """Looks into the checkpoints of one job; `look_at` is for `simulate(on_checkpoint=...)`."""

    def __init__(self, job: Job, *, exactly_once: bool) -> None:
        self._job = job
        self._exactly_once = exactly_once
        self.looked_into = 0
        """How many checkpoints were read."""
        self.in_flight = 0
        """How many captured records these held."""

    def look_at(self, objects: Mapping[str, bytes], path: str) -> None:
        """Raises AssertionError if the checkpoint is no consistent cut."""
        stored = StoredCheckpoint(objects, path)
        if stored.replaced:
            return
        rows: dict[str, list[Record]] = {}
        for uid, sink in self._job.sinks.items():
            rows[uid] = put_out(sink, [handle for to, handle in stored.handles() if to == uid])
        cut = Cut(self._job.plan, stored, rows, exactly_once=self._exactly_once)
        self.looked_into += 1
        self.in_flight += sum(map(len, cut.in_flight.values()))
        wrong = cut.faults()
        if wrong:
            raise AssertionError(f"no consistent cut: {'; '.join(wrong)}")


def put_out(sink: TransactionalSink, handles: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What a sink has committed, and what waits behind these handles.

    Raises AssertionError if that is gone.
    """
    committed, pending = sink.committed, sink.pending
    rows = [row for rows in committed.values() for row in rows]
    for handle in handles:
        id = handle["id"]
        if id not in committed:
            if id not in pending:
                raise AssertionError(f"output {id} of a completed checkpoint is not durable")
            rows += pending[id]
    return rows


class Cut:
    """One checkpoint of a plan, with the rows of each sink, committed or waiting for their commit."""

    def __init__(
        self,
        plan: Plan,
        stored: StoredCheckpoint,
        rows: Mapping[str, Sequence[Record]],
        *,
        exactly_once: bool,
    ) -> None:
        self.plan = plan
        self.stored = stored
        self.rows = rows
        self.exactly_once = exactly_once
        self._wrong: list[str] = []
        self.in_flight: dict[tuple[str, int], list[Record]] = defaultdict(list)
        """Captured records by the operator and input that were to get them."""
        for target, input_index, record in stored.in_flight():
            self._place(target, input_index, record)

    def faults(self) -> list[str]:
        """What is not where it should be; empty for a consistent cut."""
        emitted: list[Records] = []
        for number, stage in enumerate(self.plan.stages):
            uid, kind = f"op{number}", kind_of(stage)
            arrived = arriving(stage, emitted)
            consumed = [self._consumed(uid, i, records) for i, records in enumerate(arrived)]
            out = kind.at_cut(_CutOf(self, stage, number, consumed))
            emitted.append(self._consumed(f"{uid}{BACK}", 0, out))
            if number in self.plan.sinks and not kind.by_chance:
                sink = f"out{number}"
                through = kind.to_sink(consumed, emitted[-1])
                got = stamped(self.rows[sink])
                self.compare(f"the output of {sink}", got, self._consumed(sink, 0, through))
        return self._wrong

    def compare(self, what: str, has: Counter[Any], wanted: Counter[Any]) -> None:
        if lost := wanted - has:
            self._wrong.append(f"{what} lacks {some(lost)}")
        if self.exactly_once and (more := has - wanted):
            self._wrong.append(f"{what} has too many: {some(more)}")

    def _place(self, target: str, input_index: int, record: Any) -> None:
        """Put a captured record in front of the operator of the plan that it gets to.

        It may be on its way to one that only leads there, or to one behind that belongs to the stage.
        """
        uid, more, place = target.removesuffix(LAID).partition(MORE)
        count = 1
        if uid.startswith("op"):
            stage = self.plan.stages[int(uid.removesuffix(BACK).removeprefix("op"))]
            kind = kind_of(stage)
            record = kind.captured(record)
            if more:
                input_index = int(place.partition("-")[0]) if kind.inputs > 1 else 0
                count = copies_to(stage)
            elif uid.endswith(BACK):
                input_index = 0
        self.in_flight[uid, input_index] += [record] * count

    def _consumed(self, uid: str, input_index: int, arrived: Records) -> Records:
        """What an operator has consumed of what was sent to it: all but what is in flight."""
        waiting = stamped(self.in_flight[uid, input_index])
        strange = waiting - arrived
        if strange and self.exactly_once:
            self._wrong.append(
                f"in flight to {uid}, but never sent or stored twice: {some(strange)}"
            )
        return arrived - waiting


class _CutOf(CutOf):
    def __init__(self, cut: Cut, stage: Stage, number: int, consumed: Sequence[Records]) -> None:
        self._cut = cut
        self._number = number
        self.stage = stage
        self.uid = f"op{number}"
        self.plan = cut.plan
        self.stored = cut.stored
        self.consumed = consumed
        inputs = range(len(consumed))
        self.waiting = [stamped(cut.in_flight[self.uid, index]) for index in inputs]
        self.exactly_once = cut.exactly_once

    def compare(self, what: str, has: Counter[Any], wanted: Counter[Any]) -> None:
        self._cut.compare(what, has, wanted)

    def put_out(self) -> Iterable[Record]:
        cut, sink = self._cut, f"out{self._number}"
        return [*cut.rows[sink], *cut.in_flight[sink, 0], *cut.in_flight[f"{self.uid}{BACK}", 0]]


def stamped(records: Iterable[Record]) -> Records:
    return Counter((path, time) for path, time, _ in records)
