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

from minirt.testing.conformance.graphs import LAID, Job, Plan, Record, Stage, pick_up
from minirt.testing.conformance.oracle import (
    Records,
    all_records,
    arriving,
    fired,
    passed_on,
    per_key,
    some,
    spans_of,
    to_sink,
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
        assert not wrong, f"no consistent cut: {'; '.join(wrong)}"


def put_out(sink: TransactionalSink, handles: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What a sink has committed, and what waits behind these handles.

    Raises AssertionError if that is gone.
    """
    committed, pending = sink.committed, sink.pending
    rows = [row for rows in committed.values() for row in rows]
    for handle in handles:
        id = handle["id"]
        if id not in committed:
            assert id in pending, f"output {id} of a completed checkpoint is not durable"
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
        self._plan = plan
        self._stored = stored
        self._rows = rows
        self._exactly_once = exactly_once
        self._wrong: list[str] = []
        self.in_flight: dict[tuple[str, int], list[Record]] = defaultdict(list)
        """Captured records by the operator and input that were to get them."""
        for target, input_index, record in stored.in_flight():
            found = pick_up(record) if isinstance(record, dict) else record
            self.in_flight[target.removesuffix(LAID), input_index].append(found)

    def faults(self) -> list[str]:
        """What is not where it should be; empty for a consistent cut."""
        emitted: list[Records] = []
        for number, stage in enumerate(self._plan.stages):
            uid = f"op{number}"
            arrived = arriving(self._plan, stage, emitted)
            consumed = [self._consumed(uid, i, records) for i, records in enumerate(arrived)]
            emitted.append(self._emitted(uid, stage, consumed))
            if number in self._plan.sinks:
                sink = f"out{number}"
                if stage.kind == "clock":
                    self._compare_clock(uid, stage, sink, consumed)
                else:
                    through = to_sink(stage, consumed, emitted[-1])
                    got = Counter((path, time) for path, time, _ in self._rows[sink])
                    self._compare(f"the output of {sink}", got, self._consumed(sink, 0, through))
        return self._wrong

    def _consumed(self, uid: str, input_index: int, arrived: Records) -> Records:
        """What an operator has consumed of what was sent to it: all but what is in flight."""
        waiting = Counter((path, time) for path, time, _ in self.in_flight[uid, input_index])
        strange = waiting - arrived
        if strange and self._exactly_once:
            self._wrong.append(
                f"in flight to {uid}, but never sent or stored twice: {some(strange)}"
            )
        return arrived - waiting

    def _emitted(self, uid: str, stage: Stage, consumed: Sequence[Records]) -> Records:
        match stage.kind:
            case "source":
                return self._read(uid)
            case "count" | "join":
                seen = [path for _, paths in self._stored.state(uid, "seen") for path in paths]
                paths: Counter[Any] = Counter()
                for (path, _), n in sum(consumed, Records()).items():
                    paths[path] += n
                self._compare(f"the state of {uid}", Counter(seen), paths)
            case "timers":
                return self._fired(uid, stage, consumed[0])
        return passed_on(stage, uid, consumed)

    def _read(self, uid: str) -> Records:
        """What a source has given out: the records before its stored positions."""
        positions, count = self._stored.positions(uid), self._plan.count
        read = {split: count if n is None else n for split, n in positions.items()}
        return Counter(
            {
                (record, time): n
                for (record, time), n in all_records(uid, self._plan).items()
                if record[2] < read.get(f"{uid}-{record[1]}", count)
            }
        )

    def _fired(self, uid: str, stage: Stage, consumed: Records) -> Records:
        """What came of the spans that are no longer in state."""
        spans = spans_of(stage, consumed)
        left = Counter(
            {
                (key, end): count
                for key, counts in self._stored.state(uid, "spans")
                for end, count in counts.items()
            }
        )
        if self._exactly_once:  # Otherwise a record that is repeated may open a span once more.
            open_spans = Counter({span: spans[span] for span in left})
            self._compare(f"the state of {uid}", left, open_spans)
        return Counter(fired(uid, key, end) for key, end in spans if (key, end) not in left)

    def _compare_clock(
        self, uid: str, stage: Stage, sink: str, consumed: Sequence[Records]
    ) -> None:
        """The records of each key wait in state, or were counted in what was emitted."""
        counted: Counter[int] = Counter()
        for key, count in self._stored.state(uid, "waiting"):
            counted[key] += count
        for _, _, notes in [*self._rows[sink], *self.in_flight[sink, 0]]:
            [(_, _, key, count)] = notes
            counted[key] += count
        self._compare(f"what {uid} has counted by key", +counted, per_key(stage, consumed[0]))

    def _compare(self, what: str, has: Counter[Any], wanted: Counter[Any]) -> None:
        if lost := wanted - has:
            self._wrong.append(f"{what} lacks {some(lost)}")
        if self._exactly_once and (more := has - wanted):
            self._wrong.append(f"{what} has too many: {some(more)}")
