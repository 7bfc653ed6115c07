"""Comebacks: a worker that is gone is started again alone, while all others go on.

Theory of operation. If the subtasks of a worker send to nobody, nobody has seen what they did since their
snapshots on the line: records stay within the worker, and output waits for a line that is ahead of it. So
they may do it again, and in another way: no function need be deterministic, and the order between their
channels may be another one. All that they need is what came in since. Their senders keep it
(`minirt.runtime.channels.logged`), and send it again.

Who sends on must do it again in the same way, as far as its receivers have seen it. Both ends number what
goes through their channel (`minirt.runtime.channels.numbered`). The receivers tell how much they have had,
and the subtask keeps so much to itself when it does it again. What lay ahead of its snapshot and has not
come to the receivers is lost with it, and then the whole job restarts.

One worker at a time is *away*: from when its process has ended, over the delay of the restart strategy,
until its subtasks run again and have caught up with what others have seen. Whatever else fails meanwhile
ends the generation: the whole job restarts.

Source: the logs of senders that uncoordinated checkpoints need, as in R. E. Strom and S. Yemini,
"Optimistic Recovery in Distributed Systems", 1985; that what nobody has seen may come out otherwise is the
"no orphans" of E. N. Elnozahy et al., "A Survey of Rollback-Recovery Protocols in Message-Passing Systems",
2002.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import ChannelId, SubtaskId
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
from minirt.protocol.restart_commands import (
    AnnounceComeback,
    BringBack,
    ElementsHad,
    FallenBack,
    KeepFor,
    RestartEvent,
)
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
    failure: GenerationFailure
    timer: int
    """The id of its timers, which no other worker that was away has, in whatever generation."""
    until: float
    """When to give up waiting for what comes next."""
    missing: set[SubtaskId]
    """Its subtasks that do not run again."""
    announced: bool = False
    """Whether it is sure that it comes back."""
    late: bool = False
    """Whether it runs, and the time to start is over."""
    had: dict[ChannelId, int | None] = field(default_factory=dict)
    """By channel that goes out of it, how many elements its receivers have had; None as long as they have
    not told."""
    behind: set[SubtaskId] = field(default_factory=set)
    """Its subtasks that do again what others have seen."""

    def __post_init__(self) -> None:
        cuts = [at.cut for at in self.bring_back.fallen_back.values()]
        self.had = {channel: None for cut in cuts for channel, _ in cut.sent}


class Comebacks:
    """Those of one job. `alone` are the subtasks of each worker that may come back alone.

    What they do again may take `catch_up_s` seconds, besides the time to start.
    """

    def __init__(
        self,
        alone: Mapping[int, Collection[SubtaskId]],
        restarts: RestartPolicy,
        patience: Patience,
        catch_up_s: float = 0.0,
    ) -> None:
        self.count = 0
        """How often a worker was brought back, in all generations."""
        self._alone = alone
        self._restarts = restarts
        self._wait_s = patience.connect_s + patience.start_s
        """For a worker to be back."""
        self._catch_up_s = catch_up_s
        self._uids: Mapping[int, Sequence[str]] = {}
        """By vertex, the operators that keep state."""
        self._lives = 0
        self._timers = 0
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
        if gone is None or event.worker is None:
            return []
        snapshots, given_up = gone
        self._lives += 1
        self._timers += 1
        bring_back = self._bring_back(event.generation, event.worker, snapshots)
        away = _Away(bring_back, failure, self._timers, now + self._wait_s, set(subtasks))
        announced = self._wait_for_receivers(away) if away.had else self._announce(away, now)
        if announced is None:
            return []  # A strategy that gives up does so again when it is asked for the job.
        self._away = away
        return [KeepFor(event.generation, event.worker), *given_up, *announced]

    def on_event(
        self, event: RestartEvent, checkpoints: CheckpointCoordinator, now: float
    ) -> GenerationFailure | list[JobCommand]:
        """What others tell of a worker that is away, or it of itself."""
        if isinstance(event, ElementsHad):
            return self.on_had(event, now)
        back = self.on_caught_up(event.subtask)
        return checkpoints.on_back(back, now) if back else []

    def on_had(self, event: ElementsHad, now: float) -> GenerationFailure | list[JobCommand]:
        """Its receivers tell what they have had. Why the whole job has to restart, or what to do."""
        away = self._away
        if away is None or away.announced or event.worker != away.bring_back.worker:
            return []
        away.had.update((each, had) for each, had in event.elements.items() if each in away.had)
        if None in away.had.values():
            return []
        fallen_back = away.bring_back.fallen_back
        cuts = [at.cut for at in fallen_back.values()]
        lost = any((away.had[id] or 0) < sent for cut in cuts for id, sent in cut.sent)
        announced = None if lost else self._announce(away, now)
        if announced is None:
            return away.failure
        told = {
            subtask: replace(at, had=tuple((id, away.had[id] or 0) for id, _ in at.cut.sent))
            for subtask, at in fallen_back.items()
        }
        away.bring_back = replace(away.bring_back, fallen_back=told)
        away.behind = {subtask for subtask, at in told.items() if at.is_behind}
        return announced

    def on_timer(self, timer: Timer, now: float) -> GenerationFailure | list[JobCommand]:
        """Why the generation should fail by now, or what to do."""
        away = self._away
        if away is None or away.timer != timer.id:
            return []
        if timer.kind is TimerKind.BRING_BACK:
            away.until = now + self._wait_s
            return [away.bring_back, SetTimer(Timer(TimerKind.BACK, timer.id), away.until)]
        if now < away.until:
            return []
        if not away.missing and not away.late:
            away.late, away.until = True, now + self._catch_up_s
            return [SetTimer(Timer(TimerKind.BACK, timer.id), away.until)]
        reasons = GenerationFailureReason
        why, seconds = reasons.NOT_STARTED, self._wait_s
        if not away.missing:
            why, seconds = reasons.NOT_CAUGHT_UP, self._catch_up_s
        return GenerationFailure(why, count=len(away.missing or away.behind), seconds=seconds)

    def on_started(self, subtask: SubtaskId) -> Collection[SubtaskId]:
        """A subtask runs. Returns all of its worker once that is no longer away."""
        return self._on_progress(subtask, caught_up=False)

    def on_caught_up(self, subtask: SubtaskId) -> Collection[SubtaskId]:
        """It has done again what others have seen. Returns the same."""
        return self._on_progress(subtask, caught_up=True)

    def _on_progress(self, subtask: SubtaskId, *, caught_up: bool) -> Collection[SubtaskId]:
        away = self._away
        if away is None or subtask not in (away.behind if caught_up else away.missing):
            return ()
        (away.behind if caught_up else away.missing).remove(subtask)
        if away.missing or away.behind:
            return ()
        self._away = None
        return away.bring_back.fallen_back.keys()

    def _wait_for_receivers(self, away: _Away) -> list[JobCommand]:
        return [SetTimer(Timer(TimerKind.BACK, away.timer), away.until)]

    def _announce(self, away: _Away, now: float) -> list[JobCommand] | None:
        """What to do now that it is sure that it comes back; None if the strategy gives up."""
        delay = self._restarts.on_failure(now)
        if delay is None:
            return None
        self.count += 1
        away.announced = True
        return [
            AnnounceComeback(away.failure, delay),
            SetTimer(Timer(TimerKind.BRING_BACK, away.timer), now + delay),
        ]

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
