"""Comebacks: a worker that is gone is started again alone, while all others go on.

Theory of operation. A worker may come back alone if its subtasks send to nobody. Then nobody has seen what
they did since their snapshots on the line: records stay within the worker, and output waits for a line
that is ahead of it. So they may do it again, and in another way: no function need be deterministic, and
the order between their channels may be another one. All that they need is what came in since. Their
senders keep it (`minirt.runtime.channels.logged`), and send it again.

One worker at a time is *away*: from when its process has ended, over the delay of the restart strategy,
until its subtasks run again. Whatever else fails meanwhile ends the generation: the whole job restarts.

Source: the logs of senders that uncoordinated checkpoints need, as in R. E. Strom and S. Yemini,
"Optimistic Recovery in Distributed Systems", 1985; that what nobody has seen may come out otherwise is the
"no orphans" of E. N. Elnozahy et al., "A Survey of Rollback-Recovery Protocols in Message-Passing Systems",
2002.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    JobCommand,
    SetTimer,
    SnapshotAcknowledged,
    Timer,
    TimerKind,
    WorkerFailed,
)
from minirt.protocol.manifest import ManifestKey, VertexEntry
from minirt.protocol.reasons import GenerationFailure, GenerationFailureReason
from minirt.protocol.restart_commands import AnnounceComeback, BringBack, FallenBack, KeepFor
from minirt.protocol.restarts import RestartPolicy
from minirt.protocol.restore import RestorePart
from minirt.protocol.starting_point import CheckpointLocation, StartingPoint
from minirt.protocol.workers import Patience

LIVES_MAX = 999
"""How often workers come back in one generation; what they number goes by it."""


@dataclass(slots=True)
class _Away:
    """A worker that is gone."""

    bring_back: BringBack
    timer: int
    """The id of its timers, which no other worker that was away has, in whatever generation."""
    missing: set[SubtaskId]
    """Its subtasks that do not run again."""


class Comebacks:
    """Those of one job. `alone` are the subtasks of each worker that may come back alone."""

    def __init__(
        self,
        alone: Mapping[int, Collection[SubtaskId]],
        restarts: RestartPolicy,
        patience: Patience,
    ) -> None:
        self.count = 0
        """How often a worker was away, in all generations."""
        self._alone = alone
        self._restarts = restarts
        self._wait_s = patience.connect_s + patience.start_s
        """For a worker to be back."""
        self._uids: Mapping[int, Sequence[str]] = {}
        """By vertex, the operators that keep state."""
        self._lives = 0
        self._away: _Away | None = None

    def on_deployed(self, start: StartingPoint, vertices: Collection[VertexEntry]) -> None:
        """A generation begins. One with restored watermarks would have to restore them again."""
        self._uids = {vertex.id: vertex.uids for vertex in vertices}
        self._lives, self._away = LIVES_MAX if start.watermarks else 0, None

    def on_failed(
        self,
        event: WorkerFailed,
        failure: GenerationFailure,
        checkpoints: CheckpointCoordinator,
        now: float,
    ) -> list[JobCommand]:
        """What to do so that a worker comes back alone; nothing if the whole job has to restart."""
        subtasks = self._alone.get(event.worker, ()) if event.worker is not None else ()
        if not subtasks or self._away is not None or self._lives == LIVES_MAX:
            return []
        gone = checkpoints.on_gone(subtasks, failure.of_checkpoint(), now)
        delay = None if gone is None else self._restarts.on_failure(now)
        if gone is None or event.worker is None or delay is None:
            return []  # A strategy that gives up does so again when it is asked for the job.
        snapshots, given_up = gone
        self.count += 1
        self._lives += 1
        bring_back = self._bring_back(event.generation, event.worker, snapshots)
        self._away = _Away(bring_back, self.count, set(subtasks))
        return [
            KeepFor(event.generation, event.worker),
            *given_up,
            AnnounceComeback(failure, delay),
            SetTimer(Timer(TimerKind.BRING_BACK, self.count), now + delay),
        ]

    def on_timer(self, timer: Timer, now: float) -> GenerationFailure | list[JobCommand]:
        """Why the generation should fail by now, or what to do."""
        away = self._away
        if away is None or away.timer != timer.id:
            return []
        if timer.kind is TimerKind.BRING_BACK:
            return [away.bring_back, SetTimer(Timer(TimerKind.BACK, timer.id), now + self._wait_s)]
        why = GenerationFailureReason.NOT_STARTED
        return GenerationFailure(why, count=len(away.missing), seconds=self._wait_s)

    def on_started(self, subtask: SubtaskId) -> Collection[SubtaskId]:
        """A subtask runs. Returns all of its worker once the last one of that is back."""
        away = self._away
        if away is None or subtask not in away.missing:
            return ()
        away.missing.remove(subtask)
        if away.missing:
            return ()
        self._away = None
        return away.bring_back.fallen_back.keys()

    def _bring_back(
        self, generation: int, worker: int, snapshots: Mapping[SubtaskId, SnapshotAcknowledged]
    ) -> BringBack:
        fallen_back = {
            subtask: FallenBack(self._lives, one.local, one.watermarks)
            for subtask, one in snapshots.items()
            if one.local is not None and one.watermarks is not None
        }
        return BringBack(
            *(generation, worker, self._lives), self._start(generation, snapshots), fallen_back
        )

    def _start(
        self, generation: int, snapshots: Mapping[SubtaskId, SnapshotAcknowledged]
    ) -> StartingPoint:
        """Each subtask reads its own snapshot. The key names them in messages only."""
        newest = max(one.checkpoint_id for one in snapshots.values())
        restore = {
            subtask: {
                uid: RestorePart((one.snapshot,), exact=True)
                for uid in self._uids[subtask.vertex]
                if one.snapshot is not None
            }
            for subtask, one in snapshots.items()
        }
        return StartingPoint(CheckpointLocation(None, ManifestKey(newest, generation)), restore)
