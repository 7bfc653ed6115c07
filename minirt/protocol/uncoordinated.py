"""The uncoordinated family at the coordinator: lines of local snapshots become checkpoints.

Theory of operation. Subtasks report local snapshots as they become durable. Once a checkpoint is due and
the line has moved in any subtask since the last one, the coordinator tells all subtasks the line. Each
stores the slices of its inputs that are in transit on it, and that makes its part whole: the local
snapshot, which is stored already, with these slices as in-flight data. The rest is as in every family:
the manifest is written when all parts have come.

A checkpoint with barriers, such as a savepoint, is a line as well, ahead of all that was reported before
its part in each subtask. From the moment when all its parts are there, its output may be committed. So
later lines must be ahead of it in *every* subtask: it is their `floor`.

Output is committed at or before a line that is written, never by itself: handles wait here until a line
has come to the snapshot that they belong to, or to a later one. They are committed under the id of that
checkpoint, so that ids of commits grow.

A subtask may fall back to its snapshot on the line while all others go on, if nobody has seen what it has
done since, or if it does that again in the same way. It gets again what came in since, so it knows all that
lies between it and the line of the others, as it did before. What it sent ahead of its snapshot it has no
more, so its receivers may not fall back behind that any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from minirt.protocol.barriers import Barrier
from minirt.protocol.families import files_of
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.lines import LineTracker, LocalCut
from minirt.protocol.manifest import SinkHandles, SubtaskStats
from minirt.protocol.subtask_commands import StoreSlices, SubtaskCommand


@dataclass(slots=True)
class _Reported:
    """What is known of one subtask."""

    stored: dict[int, SnapshotAcknowledged] = field(default_factory=dict)
    """Its local snapshots that a line may need, by number."""
    newest: SnapshotAcknowledged | None = None
    """The last snapshot that was stored, with or without barriers: the next one may build on it."""
    number: int = 0
    """The last local snapshot that was reported, stored or not."""
    owed: list[tuple[int, SinkHandles]] = field(default_factory=list)
    """Handles that wait for their commit, with their `_place`."""
    floor: int = 0
    """The line must be ahead of this local snapshot, as a checkpoint was."""
    barrier_behind: int = 0
    """The last local snapshot ahead of its part of the newest checkpoint with barriers."""
    declined: int = 0
    unwritten: list[LocalCut] = field(default_factory=list)
    """Its local snapshots, stored or not, behind that of the last line that is whole."""
    taken_at: dict[int, float] = field(default_factory=dict)
    """When those in `stored` were taken, about, by the clock of the coordinator."""

    def statistics_on(self, number: int, ordered_at: float) -> SubtaskStats:
        """Those of its part of a line that was ordered, without what is in flight."""
        passed = [cut for cut in self.unwritten if cut.number <= number]
        return replace(
            self.stored[number].stats,
            local=number,
            age_s=max(0.0, ordered_at - self.taken_at[number]),
            skipped=sum(cut.number < number for cut in passed),
            forced=sum(cut.forced for cut in passed),
        )

    def fall_back(self, number: int) -> None:
        """What it has stored and handed over since this snapshot does not count: it will do so again."""
        self.newest, self.number = self.stored[number], number
        self.stored = {n: one for n, one in self.stored.items() if n <= number}
        self.owed = [(place, held) for place, held in self.owed if place <= _place(number)]
        self.unwritten = [cut for cut in self.unwritten if cut.number <= number]
        self.declined = 0


class Uncoordinated:
    """A `Family`. Its events come in the order in which each subtask has taken its snapshots."""

    def __init__(self, subtasks: Collection[SubtaskId]) -> None:
        self._tracker = LineTracker(subtasks)
        self._reported = {subtask: _Reported() for subtask in subtasks}
        self._moved = False
        """Whether the line has moved since the last one was ordered."""
        self.urgent = False
        self._ordered: dict[SubtaskId, int] = {}
        """The line that was ordered last."""
        self._ordered_id = 0
        """Its checkpoint."""
        self._ordered_at = 0.0
        self._not_kept: dict[ChannelId, int] = {}
        """By channel, how many records its sender cannot send again, as it has fallen back behind them."""
        self._files: set[str] = set()
        """All that subtasks have stored and that was not given out as unneeded. Several may share one."""

    @property
    def ready(self) -> bool:
        line = self._tracker.line
        return self._moved and all(line[s] > own.floor for s, own in self._reported.items())

    @property
    def declined_in_a_row(self) -> int:
        return max(own.declined for own in self._reported.values())

    def begin(self, generation: int, barrier: Barrier, *, pause: bool) -> SubtaskCommand:
        self._moved = self.urgent = False
        self._ordered, self._ordered_id = dict(self._tracker.line), barrier.checkpoint_id
        self._ordered_at = barrier.created_at
        return StoreSlices(generation, barrier.checkpoint_id, self._ordered, self._processed())

    def on_local(self, event: SnapshotAcknowledged | SnapshotDeclined, now: float) -> None:
        own, cut = self._reported[event.subtask], event.local
        assert cut is not None
        own.number = cut.number
        own.unwritten.append(cut)
        own.owed += [(_place(cut.number), held) for held in event.handles]
        if isinstance(event, SnapshotDeclined):
            own.declined += 1
            return
        own.declined = 0
        own.stored[cut.number] = own.newest = replace(event, handles=())
        own.taken_at[cut.number] = now - event.stats.async_s
        self._moved |= self._tracker.add(event.subtask, cut)
        self.urgent |= cut.early
        self._files.update(files_of([event]))

    def on_part(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        if event.of_line:
            return self._with_snapshot(event)
        own = self._reported[event.subtask]
        self._owe(event.subtask, event.handles)
        own.newest, own.barrier_behind = event, own.number
        self._files.update(files_of([event]))
        return replace(event, handles=())

    def on_declined(self, event: SnapshotDeclined) -> SnapshotDeclined:
        self._owe(event.subtask, event.handles)
        return replace(event, handles=())

    def to_leave(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        """In-flight data alone: which snapshots are needed depends on lines to come."""
        return replace(event, snapshot=None)

    def on_whole(self, checkpoint_id: int) -> list[SinkHandles]:
        due: list[SinkHandles] = []
        for subtask, own in self._reported.items():
            if checkpoint_id == self._ordered_id:
                number = self._ordered[subtask]
                upto = _place(number)
                own.unwritten = [cut for cut in own.unwritten if cut.number > number]
            else:
                own.floor = own.barrier_behind
                upto = _place(own.floor, behind=True)
            due += [held for place, held in own.owed if place <= upto]
            own.owed = [(place, held) for place, held in own.owed if place > upto]
        return sorted(
            (replace(held, checkpoint_id=checkpoint_id) for held in due),
            key=lambda held: (held.uid, held.subtask),
        )

    def on_stored(self) -> None:
        for own in self._reported.values():
            own.declined = 0

    def fall_back(
        self, subtasks: Collection[SubtaskId]
    ) -> Mapping[SubtaskId, SnapshotAcknowledged] | None:
        line = self._tracker.line
        if any(line[subtask] <= self._reported[subtask].floor for subtask in subtasks):
            return None
        found = {subtask: self._reported[subtask].stored[line[subtask]] for subtask in subtasks}
        if any(not self._gets_again(one.local) for one in found.values()):
            return None
        for subtask in subtasks:
            self._tracker.fall_back(subtask)
            self._reported[subtask].fall_back(line[subtask])
            cut = found[subtask].local
            self._not_kept.update(cut.sent_records if cut is not None else {})
        return found

    def _gets_again(self, cut: LocalCut | None) -> bool:
        """Whether its senders have what came in behind a snapshot."""
        if cut is None or cut.processed is None:
            return False
        return all(records >= self._not_kept.get(id, 0) for id, records in cut.processed)

    def take_unneeded(self) -> frozenset[str]:
        needed: set[str] = set()
        for subtask, own in self._reported.items():
            kept = self._tracker.kept(subtask)
            own.stored = {number: own.stored[number] for number in kept if number in own.stored}
            own.taken_at = {number: own.taken_at[number] for number in own.stored}
            parts = [*own.stored.values(), *([own.newest] if own.newest is not None else [])]
            needed.update(files_of(parts))
        unneeded = frozenset(self._files - needed)
        self._files &= needed
        return unneeded

    def _processed(self) -> dict[ChannelId, int]:
        """What no subtask needs again that falls back to the line that was ordered."""
        found: dict[ChannelId, int] = {}
        for subtask, own in self._reported.items():
            cut = own.stored[self._ordered[subtask]].local
            if cut is not None and cut.processed is not None:
                found.update(cut.processed)
        return found

    def _owe(self, subtask: SubtaskId, handles: Collection[SinkHandles]) -> None:
        """Of a snapshot with barriers."""
        own = self._reported[subtask]
        own.owed += [(_place(own.number, behind=True), held) for held in handles]

    def _with_snapshot(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        """What a line needs of a subtask. It may come too late, when the snapshot is forgotten."""
        own, number = self._reported[event.subtask], self._ordered[event.subtask]
        stored = own.stored.get(number)
        if stored is None or event.checkpoint_id != self._ordered_id:
            return event
        stats = replace(
            own.statistics_on(number, self._ordered_at),
            in_flight_bytes=event.stats.in_flight_bytes,
        )
        return replace(event, snapshot=stored.snapshot, stats=stats)


def _place(number: int, *, behind: bool = False) -> int:
    """The place of a local snapshot among all of its subtask, or of those with barriers behind it."""
    return 2 * number + behind
