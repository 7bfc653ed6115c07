"""A job whose checkpoints may overlap, and what its coordinator orders, for tests of the protocol."""

from __future__ import annotations

from minirt.modes import MODES
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import JobCommand, SetTimer, StoreManifest, Timer, TimerKind
from minirt.protocol.manifest import Manifest, SinkHandles
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.subtask_commands import TriggerCheckpoint
from tests.protocol.parts import SINK, SOURCE, CoordinatedJob, acknowledged, trigger_timer

SETTINGS = CheckpointSettings(
    "aligned",
    interval_s=10.0,
    timeout_s=60.0,
    tolerable_failures=2,
    modes=MODES,
    max_concurrent=2,
)
GO_ON, STOP, DRAIN = Afterwards.GO_ON, Afterwards.STOP, Afterwards.DRAIN


class Job(CoordinatedJob):
    """Two checkpoints may be under way, unless the settings say otherwise."""

    def __init__(self, settings: CheckpointSettings = SETTINGS) -> None:
        super().__init__(settings, requests_max=5)

    def trigger(self, id: int, now: float) -> list[JobCommand]:
        return self.checkpoints.on_trigger_timer(id, now)

    def ask(
        self, id: int, now: float, mode: str = "aligned", afterwards: Afterwards = GO_ON
    ) -> list[JobCommand]:
        return self.request(SavepointRequest(id, mode, None, afterwards), now)

    def hear(self, id: int, subtask: SubtaskId, now: float, *held: SinkHandles) -> list[JobCommand]:
        return self.checkpoints.on_acknowledged(acknowledged(id, subtask, *held), now)

    def whole(self, id: int, now: float, *held: SinkHandles) -> Manifest:
        """All acknowledge, the sink with its handles; the manifest that is to be stored."""
        assert self.hear(id, SOURCE, now) == []
        [store] = self.hear(id, SINK, now, *held)
        assert isinstance(store, StoreManifest)
        return store.manifest

    def stored(self, id: int, now: float) -> list[JobCommand]:
        return self.checkpoints.on_manifest_stored(id, now)

    def complete(self, id: int, now: float, *held: SinkHandles) -> list[JobCommand]:
        self.whole(id, now, *held)
        return self.stored(id, now)

    @property
    def under_way(self) -> list[int]:
        return [one.checkpoint_id for one in self.checkpoints.under_way]


def begun(
    id: int, now: float, oldest_id: int | None, *, mode: str = "aligned", savepoint: bool = False
) -> list[JobCommand]:
    barrier = Barrier(id, mode, now, savepoint, oldest_id)
    return [TriggerCheckpoint(1, barrier), SetTimer(Timer(TimerKind.EXPIRE, id), now + 60.0)]


def next_at(id: int, at: float) -> SetTimer:
    return SetTimer(trigger_timer(id), at)


def two_under_way() -> Job:
    """Since the times 10 and 20."""
    job = Job()
    job.trigger(1, 10.0)
    job.trigger(2, 20.0)
    return job
