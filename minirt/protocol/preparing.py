"""How a generation is prepared, from its claim to the moment when workers may start.

    claim a generation          older ones are not current any more
    choose a checkpoint         the user's choice at first, the newest one since on every restart
    plan                        who reads which snapshots, in-flight data and splits
    resolve the generation      from here on newer checkpoints than the chosen one do not count
    commit and discard          what the checkpoint holds of each sink, unless the user gives it up; what
                                nobody refers to

A preparation decides and does nothing, like all here: each call of `handle` gives the next command, or
the event of the job with which the preparation is over. It is told in one piece, as a generator, because
its order is its point: whatever stops it in the middle, the next generation claims anew and goes on from
what is on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    MinirtError,
    ProtocolError,
    SinkDataError,
    SupersededError,
    UserCodeError,
)
from minirt.protocol.choosing import Choice, RestorePoint, Steps, ask, choose
from minirt.protocol.damage import cannot_restore, fallback_to
from minirt.protocol.giving_up import (
    GivenUpOutput,
    check_gives_up_a_sink,
    given_up_by,
    orphaned_output,
    way_out,
)
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import GenerationFailed, GenerationPrepared, PrepareGeneration
from minirt.protocol.manifest import Manifest, ManifestKey, next_checkpoint_id
from minirt.protocol.preparing_events import (
    BuildOn,
    CheckpointsListed,
    ClaimGeneration,
    CommitRestored,
    DiscardUncommitted,
    Done,
    EndDrain,
    GenerationClaimed,
    GenerationResolved,
    ListCheckpoints,
    OpenCommitter,
    PlanSplits,
    PreparingCommand,
    PreparingEvent,
    ResolveGeneration,
    SplitsPlanned,
    StepFailed,
    Sweep,
    Warn,
)
from minirt.protocol.redistribution import dealt_otherwise, plan_in_flight
from minirt.protocol.restore import plan_restore
from minirt.protocol.restore_options import FRESH, RestoreOptions
from minirt.protocol.starting_point import CheckpointLocation, SplitPlan, StartingPoint
from minirt.protocol.stored_watermarks import WatermarkPlan, plan_watermarks
from minirt.protocol.topology import Topology
from minirt.wording import given

FATAL = (
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    SinkDataError,
    UserCodeError,
)
"""Errors that the next attempt would meet again."""

_ADVISED = (
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    SinkDataError,
    UserCodeError,
)
"""Errors of commits that another attempt would meet again, and that one text makes."""

Damaged = Mapping[ManifestKey, CorruptCheckpointError]

PreparationStep = PreparingCommand | GenerationPrepared | GenerationFailed
"""The next command, or the event of the job with which a preparation is over."""


class Preparation:
    """Prepares the generations of one run of a job, one after the other.

    A job that is not `stored` has no checkpoints: its generations are counted here alone.
    """

    def __init__(
        self,
        topology: Topology,
        restore: RestoreOptions,
        *,
        stored: bool,
        restored_watermarks: bool = False,
    ) -> None:
        self._topology = topology
        self._restore = restore
        self._stored = stored
        self._restored_watermarks = restored_watermarks
        self._resolved = False
        """Whether a generation of this run has put on record what it starts from."""
        self._split_counts: dict[str, int] = {}
        """How many splits each source has planned, by uid: once, so that a restart reads the same."""
        self._given_up: tuple[CheckpointLocation, GivenUpOutput] | None = None
        """The output that the user gives up, and the checkpoint that holds it."""
        self._way_out: str | None = None
        """What to do if the commit that is under way can never succeed; None while there is none."""
        self._steps: Steps[GenerationPrepared] | None = None
        self.generation = 0

    def take_shape(self, topology: Topology) -> None:
        """The next generations have this topology: the job is the same, its parallelism another one."""
        self._topology = topology

    def handle(self, event: PrepareGeneration | PreparingEvent) -> PreparationStep:
        """What to do next. A failure of any step ends the preparation."""
        try:
            match event:
                case PrepareGeneration(damaged):
                    self._way_out = None
                    self._steps = self._prepare(self._with_ways_out(damaged))
                    return next(self._steps)
                case StepFailed(error):
                    return self._fail(self._with_way_out(error))
            if self._steps is None:
                raise ProtocolError(f"no preparation is under way: {event}")
            return self._steps.send(event)
        except StopIteration as end:
            self._steps = None
            prepared: GenerationPrepared = end.value
            return prepared
        except MinirtError as error:
            return self._fail(error)

    def _fail(self, error: Exception) -> GenerationFailed:
        self._steps = None
        return GenerationFailed(error, fatal=isinstance(error, FATAL))

    def _with_way_out(self, error: Exception) -> Exception:
        """The error, with what the user can do if it is a commit that can never succeed."""
        if self._way_out is None or type(error) not in _ADVISED:
            return error
        advised = type(error)(f"{error}. {self._way_out[0].upper()}{self._way_out[1:]}")
        advised.__cause__ = error
        return advised

    def _with_ways_out(self, damaged: Damaged) -> Damaged:
        fallback = None if self._restore.allow_fallback else fallback_to(None)
        return {
            key: cannot_restore(error, key.checkpoint_id, fallback)
            for key, error in damaged.items()
        }

    def _prepare(self, damaged: Damaged) -> Steps[GenerationPrepared]:
        if damaged and not self._restore.allow_fallback:
            raise next(iter(damaged.values()))
        check_gives_up_a_sink(self._restore, self._topology)
        if not self._stored:
            self.generation += 1
            start = yield from self._starting_point(None)
            yield from self._settle_sinks(None)
            return GenerationPrepared(self.generation, None, 1, start=start)
        claimed = yield from ask(ClaimGeneration(), GenerationClaimed)
        self.generation = claimed.generation
        point = yield from self._choose(damaged)
        if point is not None:
            for loss in _losses(point, self._topology):
                yield Warn(loss)
        start = yield from self._starting_point(point)
        next_id = yield from self._resolve(point)
        restored = None if point is None else point.manifest
        given_up = yield from self._settle_sinks(point)
        drains = point is not None and point.drains
        return GenerationPrepared(
            self.generation, restored, next_id, drains, start, given_up=given_up
        )

    def _choose(self, damaged: Damaged) -> Steps[RestorePoint | None]:
        """The user's choice at first; later the newest checkpoint since, or again the user's choice."""
        which, wanted = self._restore.which, self._restore
        common = (wanted.allow_fallback, damaged, wanted.ignore_in_flight_data_of)
        if self._resolved:
            point = yield from choose(Choice("latest", *common))
            if point is not None or which == "latest":
                return point
        if which is None or which == FRESH:
            return None
        point = yield from choose(Choice(which, *common))
        _check_in_flight_is_ignored(wanted, point)
        given_up = given_up_by(wanted, point)
        if given_up is not None and point is not None:
            self._given_up = (point.location, given_up)
        return point

    def _resolve(self, point: RestorePoint | None) -> Steps[int]:
        """Put on record what is restored. Returns the id of the first checkpoint to come."""
        base = None if point is None else point.base
        resolved = yield from ask(ResolveGeneration(self.generation, base), GenerationResolved)
        if not resolved.current:
            raise SupersededError
        if point is not None and base is not None:
            yield from ask(BuildOn(point.manifest), Done)
            yield from _settle_drain(point)
        # Not before: until its drain is over, "latest" would end the job with a checkpoint to read on from.
        self._resolved = True
        yield from ask(Sweep(), Done)
        listed = yield from ask(ListCheckpoints(), CheckpointsListed)
        return first_checkpoint_id(listed, point)

    def _settle_sinks(self, point: RestorePoint | None) -> Steps[GivenUpOutput | None]:
        """Nobody knows how far the commits of the restored checkpoint came: so all are done again.

        Returns the output that is dropped instead, as the user wants it.
        """
        dropped = self._dropped_with(point)
        held = () if point is None else point.manifest.sink_handles
        for vertex in self._topology.vertices:
            for operator in vertex.operators:
                if not operator.writes:
                    continue
                own = tuple(part for part in held if part.uid == operator.uid and part.handles)
                yield from ask(OpenCommitter(operator.uid, self.generation), Done)
                if dropped is not None and operator.uid == dropped.uid:
                    yield Warn(str(dropped))
                    own = ()
                if point is not None and own:
                    self._way_out = way_out(operator.uid, own, point.manifest)
                    yield from ask(CommitRestored(operator.uid, own), Done)
                    self._way_out = None
                handles = tuple(handle for part in own for handle in part.handles)
                yield from ask(DiscardUncommitted(operator.uid, handles), Done)
        return dropped

    def _dropped_with(self, point: RestorePoint | None) -> GivenUpOutput | None:
        """Output is given up in each generation that restores the checkpoint, in no later one."""
        if point is None or self._given_up is None:
            return None
        location, given_up = self._given_up
        return given_up if point.location == location else None

    def _starting_point(self, point: RestorePoint | None) -> Steps[StartingPoint]:
        if point is None:
            splits = yield from self._deal_splits(restored=set())
            return StartingPoint(splits=splits)
        plan = plan_restore(
            point.manifest,
            self._topology,
            allow_non_restored_state=self._restore.allow_non_restored_state,
        )
        in_flight = plan_in_flight(point.manifest, self._topology)
        watermarks = self._watermarks(point.manifest)
        restored = {uid for parts in plan.values() for uid in parts}
        splits = yield from self._deal_splits(restored)
        return StartingPoint(point.location, plan, in_flight, watermarks, splits)

    def _watermarks(self, manifest: Manifest) -> WatermarkPlan:
        if not self._restored_watermarks:
            return {}
        otherwise = dealt_otherwise(manifest, self._topology)
        return plan_watermarks(manifest.watermarks, self._topology, otherwise)

    def _deal_splits(self, restored: set[str]) -> Steps[SplitPlan]:
        """The splits of sources that start from the beginning, dealt round robin."""
        dealt: dict[SubtaskId, tuple[int, ...]] = {}
        for vertex in self._topology.vertices:
            source = vertex.operators[0]
            if not source.reads or source.uid in restored:
                continue
            if source.uid not in self._split_counts:
                planned = yield from ask(PlanSplits(source.uid), SplitsPlanned)
                self._split_counts[source.uid] = planned.count
            places = range(self._split_counts[source.uid])
            for subtask in vertex.subtasks():
                dealt[subtask] = tuple(places[subtask.index :: vertex.parallelism])
        return dealt


def first_checkpoint_id(listed: CheckpointsListed, point: RestorePoint | None) -> int:
    """An id that is newer than all that the storage, and the restored checkpoint, know of."""
    restored = [] if point is None else [point.manifest.key]
    return next_checkpoint_id([*listed.keys, *restored], listed.claims)


def _check_in_flight_is_ignored(options: RestoreOptions, point: RestorePoint | None) -> None:
    """What the user gives up must be there, or they took another checkpoint for the damaged one."""
    wanted = options.ignore_in_flight_data_of
    if wanted is None:
        return
    option = given("ignore_in_flight_data_of", wanted)
    if point is None or point.manifest.checkpoint_id != wanted:
        chosen = "none" if point is None else str(point.manifest.checkpoint_id)
        raise ConfigurationError(
            f"{option} has no effect: {given('restore', options.which)} chose checkpoint {chosen}; "
            f"give {given('restore', wanted)} as well, or leave it out"
        )
    if not point.ignored:
        raise ConfigurationError(
            f"{option} has no effect: checkpoint {wanted} holds no in-flight data; leave it out"
        )


def _settle_drain(point: RestorePoint) -> Steps[None]:
    """A drain that is not over ends the job, unless the user asked for just this checkpoint."""
    if point.drains:
        yield Warn(
            f"checkpoint {point.manifest.checkpoint_id} was taken by a drain that did not come to its "
            "end: it is completed, and the job ends; start it again to read on"
        )
    elif point.manifest.drain is not None:
        yield from ask(EndDrain(point.manifest.key), Done)


def _losses(point: RestorePoint, topology: Topology) -> Iterable[str]:
    """Say what is lost: nothing damaged or given up is left out in silence."""
    for error in point.skipped:
        yield f"passed over: {error}"
    for output in orphaned_output(point.manifest, topology):
        yield f"{output}: the job has no sink of that uid any more"
    if not point.ignored:
        return
    channels = [channel for captured in point.ignored for channel in captured.channels]
    count = len({(channel.link, channel.sender, channel.receiver) for channel in channels})
    yield (
        f"checkpoint {point.manifest.checkpoint_id} is restored without its in-flight data: "
        f"{sum(channel.bytes for channel in channels)} bytes of records in {count} channels are lost"
    )
