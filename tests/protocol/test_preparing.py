"""How a generation is prepared: each answer, and the command that follows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    StorageError,
    SupersededError,
    UserCodeError,
)
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import GenerationFailed, GenerationPrepared, PrepareGeneration
from minirt.protocol.manifest import (
    ChannelData,
    Drain,
    GenerationClaim,
    InFlightRef,
    Manifest,
    ManifestKey,
    SnapshotRef,
)
from minirt.protocol.preparing import Preparation, PreparationStep
from minirt.protocol.preparing_events import (
    BuildOn,
    CheckpointDamaged,
    CheckpointRead,
    CheckpointsListed,
    ClaimGeneration,
    CommitRestored,
    DiscardUncommitted,
    Done,
    DrainFound,
    EndDrain,
    GenerationClaimed,
    GenerationResolved,
    ListCheckpoints,
    LookForDrain,
    OpenCommitter,
    PlanSplits,
    PreparingEvent,
    ReadCheckpoint,
    ResolveGeneration,
    SplitsPlanned,
    StepFailed,
    Sweep,
    Warn,
)
from minirt.protocol.restore import RestorePart
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.starting_point import CheckpointLocation, StartingPoint
from minirt.protocol.topology import (
    EdgeFacts,
    InFlight,
    OperatorFacts,
    Order,
    Topology,
    VertexFacts,
)
from tests.protocol.parts import VERTICES, handles

NUMBERS = OperatorFacts("numbers", stateful=True, reads=True)
OUT = OperatorFacts("out", stateful=True, writes=True)
EDGE = EdgeFacts(
    *("numbers > out:0", 0, "numbers", 1, "out", "forward", 1, 1, (1,)),
    in_flight=InFlight.WHOLE_CHANNELS,
    order=Order.STRAIGHT,
    pointwise=False,
)
JOB = Topology(
    (VertexFacts(0, "numbers", (NUMBERS,), 1, 128), VertexFacts(1, "out", (OUT,), 1, 128)), (EDGE,)
)
SOURCE, SINK = SubtaskId(0, 0), SubtaskId(1, 0)
ROOT = "/checkpoints"
OLD, NEW = ManifestKey(4, 1), ManifestKey(5, 1)
FIRST, SECOND = GenerationClaim(1, None, resolved=True), GenerationClaim(2)
LISTED = CheckpointsListed((OLD, NEW), (FIRST, SECOND), ROOT)
TORN = CorruptCheckpointError("torn", f"{ROOT}/chk-00000005-g00000001/v0-s0.part")
HELD = handles(5)
KEPT = HELD.handles


def manifest(key: ManifestKey = NEW, *, drain: Drain | None = None) -> Manifest:
    refs = tuple(SnapshotRef(vertex, 0, f"part-{vertex}", None, 10, 0) for vertex in (0, 1))
    taken = Manifest(
        1, "job", key.checkpoint_id, key.generation, "aligned", "checkpoint", 0.0, 1.0, VERTICES, refs,
        (HELD,), (),
    )  # fmt: skip
    return replace(taken, drain=drain)


def from_checkpoint(key: ManifestKey = NEW, root: str | None = None) -> StartingPoint:
    numbers, out = manifest(key).snapshots
    return StartingPoint(
        CheckpointLocation(root, key),
        restore={
            SOURCE: {"numbers": RestorePart((numbers,), exact=True)},
            SINK: {"out": RestorePart((out,), exact=True)},
        },
    )


def preparation(restore: RestoreOptions | None = None, *, stored: bool = True) -> Preparation:
    return Preparation(JOB, restore or RestoreOptions("latest"), stored=stored)


def told(
    preparing: Preparation, *events: PrepareGeneration | PreparingEvent
) -> list[PreparationStep]:
    """What follows each event."""
    return [preparing.handle(event) for event in events]


BEGIN = (PrepareGeneration(), GenerationClaimed(2))
SETTLE = (Done(), Done(), LISTED, Done(), Done(), Done())
"""The answers from `BuildOn` to the end, for a checkpoint of the job's own storage."""


def settled(key: ManifestKey = NEW, generation: int = 2) -> list[PreparationStep]:
    """What comes once a checkpoint is resolved."""
    return [
        BuildOn(manifest(key)),
        Sweep(),
        ListCheckpoints(),
        OpenCommitter("out", generation),
        CommitRestored("out", (HELD,)),
        DiscardUncommitted("out", KEPT),
        GenerationPrepared(generation, manifest(key), 6, start=from_checkpoint(key)),
    ]


def test_the_newest_checkpoint_is_restored() -> None:
    resolved = GenerationResolved(current=True)
    assert told(preparation(), *BEGIN, LISTED, CheckpointRead(manifest()), resolved, *SETTLE) == [
        ClaimGeneration(),
        ListCheckpoints(),
        ReadCheckpoint(None, NEW),
        ResolveGeneration(2, NEW),
        *settled(),
    ]


def test_without_checkpoints_sources_start_from_their_beginning() -> None:
    nothing = CheckpointsListed((), (SECOND,), ROOT)
    start = StartingPoint(splits={SOURCE: (0, 1, 2)})
    events = (
        *BEGIN, nothing, SplitsPlanned(3), GenerationResolved(current=True), Done(), nothing,
        Done(), Done(),
    )  # fmt: skip
    assert told(preparation(), *events) == [
        ClaimGeneration(),
        ListCheckpoints(),
        PlanSplits("numbers"),
        ResolveGeneration(2, None),
        Sweep(),
        ListCheckpoints(),
        OpenCommitter("out", 2),
        DiscardUncommitted("out", ()),
        GenerationPrepared(2, None, 1, start=start),
    ]


def test_without_storage_generations_are_counted_and_splits_planned_once() -> None:
    preparing = preparation(RestoreOptions(), stored=False)
    start = StartingPoint(splits={SOURCE: (0, 1)})
    assert told(preparing, PrepareGeneration(), SplitsPlanned(2), Done(), Done()) == [
        PlanSplits("numbers"),
        OpenCommitter("out", 1),
        DiscardUncommitted("out", ()),
        GenerationPrepared(1, None, 1, start=start),
    ]
    assert told(preparing, PrepareGeneration(), Done(), Done()) == [
        OpenCommitter("out", 2),
        DiscardUncommitted("out", ()),
        GenerationPrepared(2, None, 1, start=start),
    ]


def test_splits_are_dealt_round_robin() -> None:
    wide = VertexFacts(0, "numbers", (NUMBERS,), 3, 128)
    preparing = Preparation(Topology((wide,)), RestoreOptions(), stored=False)
    splits = {SubtaskId(0, 0): (0, 3), SubtaskId(0, 1): (1,), SubtaskId(0, 2): (2,)}
    assert told(preparing, PrepareGeneration(), SplitsPlanned(4)) == [
        PlanSplits("numbers"),
        GenerationPrepared(1, None, 1, start=StartingPoint(splits=splits)),
    ]


def test_starting_over_looks_at_no_checkpoint() -> None:
    steps = told(preparation(RestoreOptions("none")), *BEGIN, SplitsPlanned(1))
    assert steps == [ClaimGeneration(), PlanSplits("numbers"), ResolveGeneration(2, None)]


def test_a_damaged_checkpoint_is_refused_with_the_ways_out() -> None:
    *asked, failed = told(preparation(), *BEGIN, LISTED, CheckpointDamaged(TORN))
    assert asked == [ClaimGeneration(), ListCheckpoints(), ReadCheckpoint(None, NEW)]
    assert isinstance(failed, GenerationFailed)
    assert failed.fatal
    assert f'restore="{ROOT}/chk-00000004-g00000001"' in str(failed.error)


def test_a_damaged_checkpoint_is_passed_over_where_that_is_allowed() -> None:
    preparing = preparation(RestoreOptions("latest", allow_fallback=True))
    read = CheckpointRead(manifest(OLD))
    *asked, warning, resolve = told(
        preparing, *BEGIN, LISTED, CheckpointDamaged(TORN), read, Done()
    )
    assert asked == [
        ClaimGeneration(),
        ListCheckpoints(),
        ReadCheckpoint(None, NEW),
        ReadCheckpoint(None, OLD),
    ]
    assert isinstance(warning, Warn)
    assert warning.text.startswith("passed over: checkpoint 5 cannot be restored, torn")
    assert resolve == ResolveGeneration(2, OLD)


def test_one_that_was_deleted_since_is_passed_over_in_silence() -> None:
    gone, read = CheckpointDamaged(TORN, deleted=True), CheckpointRead(manifest(OLD))
    steps = told(preparation(), *BEGIN, LISTED, gone, read)
    assert steps[-2:] == [ReadCheckpoint(None, OLD), ResolveGeneration(2, OLD)]
    assert told(preparation(), *BEGIN, LISTED, gone, gone)[-1] == PlanSplits("numbers")


def test_a_job_never_starts_from_nothing_because_all_is_damaged() -> None:
    preparing = preparation(RestoreOptions("latest", allow_fallback=True))
    failed = told(preparing, *BEGIN, LISTED, CheckpointDamaged(TORN), CheckpointDamaged(TORN))[-1]
    assert isinstance(failed, GenerationFailed)
    assert failed.fatal
    assert "none of 2 checkpoints can be restored" in str(failed.error)


def test_damage_that_workers_met_is_passed_over_or_ends_the_job() -> None:
    damaged = PrepareGeneration({NEW: TORN})
    preparing = preparation(RestoreOptions("latest", allow_fallback=True))
    assert told(preparing, damaged, GenerationClaimed(2), LISTED) == [
        ClaimGeneration(),
        ListCheckpoints(),
        ReadCheckpoint(None, OLD),
    ]
    (failed,) = told(preparation(), damaged)
    assert isinstance(failed, GenerationFailed)
    assert failed.fatal
    assert "allow_restore_fallback=True" in str(failed.error)


def test_after_a_restart_the_newest_counts_whatever_the_user_chose() -> None:
    preparing = preparation(RestoreOptions(4))
    read, resolved = CheckpointRead(manifest(OLD)), GenerationResolved(current=True)
    steps = told(preparing, *BEGIN, LISTED, read, resolved, *SETTLE)
    assert steps[2:] == [ReadCheckpoint(None, OLD), ResolveGeneration(2, OLD), *settled(OLD)]
    again = (PrepareGeneration(), GenerationClaimed(3))
    newer = CheckpointsListed((OLD, ManifestKey(6, 2)), (FIRST, SECOND), ROOT)
    assert told(preparing, *again, newer)[-1] == ReadCheckpoint(None, ManifestKey(6, 2))


@pytest.mark.parametrize(
    ("which", "root"),
    [("/copy", "/copy"), ("/copy/chk-00000005-g00000001", "/copy"),
     ("/copy/manifests/chk-00000005-g00000001.manifest", "/copy")],
)  # fmt: skip
def test_a_checkpoint_from_elsewhere_is_no_base(which: str, root: str) -> None:
    there = CheckpointsListed((NEW,), (), root, own=False)
    here = CheckpointsListed((), (SECOND,), ROOT)
    resolved = GenerationResolved(current=True)
    assert told(
        preparation(RestoreOptions(which)),
        *(
            *BEGIN,
            there,
            CheckpointRead(manifest()),
            resolved,
            Done(),
            here,
            Done(),
            Done(),
            Done(),
        ),
    ) == [
        ClaimGeneration(),
        ListCheckpoints(root),
        ReadCheckpoint(root, NEW),
        ResolveGeneration(2, None),
        Sweep(),
        ListCheckpoints(),
        OpenCommitter("out", 2),
        CommitRestored("out", (HELD,)),
        DiscardUncommitted("out", KEPT),
        GenerationPrepared(2, manifest(), 6, start=from_checkpoint(root=root)),
    ]


def test_a_drain_that_is_not_over_is_completed() -> None:
    drained = manifest(drain=Drain("/there"))
    read, resolved = CheckpointRead(drained), GenerationResolved(current=True)
    events = (*BEGIN, LISTED, read, DrainFound(over=False), resolved, Done(), *SETTLE)
    *steps, prepared = told(preparation(), *events)
    assert steps[3:6] == [LookForDrain(NEW), ResolveGeneration(2, NEW), BuildOn(drained)]
    assert isinstance(steps[6], Warn)
    assert prepared == GenerationPrepared(2, drained, 6, drains=True, start=from_checkpoint())


def test_who_asks_for_a_drained_checkpoint_by_its_id_reads_on() -> None:
    drained = manifest(drain=Drain("/there"))
    read, resolved = CheckpointRead(drained), GenerationResolved(current=True)
    steps = told(preparation(RestoreOptions(5)), *BEGIN, LISTED, read, resolved, Done(), *SETTLE)
    assert steps[3:6] == [ResolveGeneration(2, NEW), BuildOn(drained), EndDrain(NEW)]
    assert steps[-1] == GenerationPrepared(2, drained, 6, start=from_checkpoint())


def test_until_its_drain_is_over_the_users_choice_holds() -> None:
    """The newest checkpoint would be the same, but would end the job."""
    preparing = preparation(RestoreOptions(5))
    read, resolved = CheckpointRead(manifest(drain=Drain(None))), GenerationResolved(current=True)
    broken = StepFailed(StorageError("no answer"))
    failed = told(preparing, *BEGIN, LISTED, read, resolved, Done(), broken)[-1]
    assert failed == GenerationFailed(broken.error, fatal=False)
    again = told(preparing, PrepareGeneration(), GenerationClaimed(3), LISTED, read)
    assert again[-1] == ResolveGeneration(3, NEW)


def test_who_was_replaced_touches_no_sink() -> None:
    replaced = GenerationResolved(current=False)
    failed = told(preparation(), *BEGIN, LISTED, CheckpointRead(manifest()), replaced)[-1]
    assert isinstance(failed, GenerationFailed)
    assert isinstance(failed.error, SupersededError)
    assert failed.fatal


def test_in_flight_data_is_given_up_where_the_user_says_so() -> None:
    ref = SnapshotRef(1, 0, "in-flight", None, 10, 0)
    channel = ChannelData("numbers > out:0", 0, 0, "in", "forward", 1, 10, 3)
    captured = replace(manifest(), in_flight=(InFlightRef(ref, (channel,)),))
    options = RestoreOptions("latest", ignore_in_flight_data_of=5)
    events = (*BEGIN, LISTED, CheckpointRead(captured), Done())
    *_, read, warning, resolve = told(preparation(options), *events)
    assert read == ReadCheckpoint(None, NEW, in_flight=False)
    assert isinstance(warning, Warn)
    assert "10 bytes of records in 1 channels are lost" in warning.text
    assert resolve == ResolveGeneration(2, NEW)
    failed = told(preparation(options), *BEGIN, LISTED, CheckpointRead(manifest()))[-1]
    assert isinstance(failed, GenerationFailed)
    assert "holds no in-flight data" in str(failed.error)


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (StorageError("no answer"), False),
        (OSError("no route"), False),
        (ConfigurationError("no such option"), True),
        (UserCodeError("the source raised"), True),
    ],
)
def test_a_step_that_fails_ends_the_preparation(error: Exception, fatal: bool) -> None:
    preparing = preparation()
    assert told(preparing, PrepareGeneration(), StepFailed(error)) == [
        ClaimGeneration(),
        GenerationFailed(error, fatal),
    ]
    assert told(preparing, PrepareGeneration()) == [ClaimGeneration()]


class ModelStorage:
    """What two coordinators that start at the same time share: claims, checkpoints, a sink."""

    def __init__(self) -> None:
        self.claims = {1: FIRST}

    def answer(self, command: PreparationStep) -> PreparingEvent:
        match command:
            case ClaimGeneration():
                generation = max(self.claims) + 1
                self.claims[generation] = GenerationClaim(generation)
                return GenerationClaimed(generation)
            case ListCheckpoints():
                claims = tuple(self.claims[generation] for generation in sorted(self.claims))
                return CheckpointsListed((OLD, NEW), claims, ROOT)
            case ReadCheckpoint(key=key):
                return CheckpointRead(manifest(key))
            case ResolveGeneration(generation, base):
                self.claims[generation] = GenerationClaim(generation, base, resolved=True)
                return GenerationResolved(current=generation == max(self.claims))
        return Done()


def test_of_two_coordinators_in_any_order_the_later_one_goes_on() -> None:
    """Every interleaving of two preparations, step by step."""
    ended = set()
    for order in product((0, 1), repeat=10):
        storage = ModelStorage()
        preparations = (preparation(), preparation())
        steps = [preparing.handle(PrepareGeneration()) for preparing in preparations]
        have_discarded = set()
        for turn in (*order, *([0] * 10), *([1] * 10)):
            if isinstance(steps[turn], DiscardUncommitted):
                have_discarded.add(preparations[turn])
            if not isinstance(steps[turn], GenerationPrepared | GenerationFailed):
                steps[turn] = preparations[turn].handle(storage.answer(steps[turn]))
        later = max(preparations, key=lambda preparing: preparing.generation)
        step = steps[preparations.index(later)]
        assert isinstance(step, GenerationPrepared)
        assert step.restored == manifest()
        ended.add(tuple(type(step).__name__ for step in steps))
        failed = {
            p for p, s in zip(preparations, steps, strict=True) if isinstance(s, GenerationFailed)
        }
        assert not failed & have_discarded
        assert later in have_discarded
    assert ended == {
        ("GenerationPrepared", "GenerationPrepared"),
        ("GenerationPrepared", "GenerationFailed"),
        ("GenerationFailed", "GenerationPrepared"),
    }
