"""The way out of a checkpoint whose output can never be committed: each answer, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import ConfigurationError, SinkDataError, StorageError
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.job_events import GenerationFailed, GenerationPrepared, PrepareGeneration
from minirt.protocol.manifest import GenerationClaim, Manifest, ManifestKey, SinkHandles
from minirt.protocol.preparing import Preparation, PreparationStep
from minirt.protocol.preparing_events import (
    BuildOn,
    CheckpointRead,
    CheckpointsListed,
    ClaimGeneration,
    CommitRestored,
    DiscardUncommitted,
    Done,
    GenerationClaimed,
    GenerationResolved,
    ListCheckpoints,
    OpenCommitter,
    PreparingEvent,
    ReadCheckpoint,
    ResolveGeneration,
    StepFailed,
    Sweep,
    Warn,
)
from minirt.protocol.restore_options import RestoreOptions, output_of
from minirt.protocol.topology import OperatorFacts, Topology, VertexFacts
from tests.protocol.test_preparing import LISTED, NEW, OLD, manifest

NUMBERS = OperatorFacts("numbers", stateful=True, reads=True)
OUT, TOO = (OperatorFacts(uid, stateful=True, writes=True) for uid in ("out", "too"))


def of(uid: str, checkpoint_id: int, *rows: int | None, subtask: int = 0) -> SinkHandles:
    each = ({} if count is None else {"rows": count} for count in rows)
    return SinkHandles(uid, checkpoint_id, subtask, tuple(each))


HELD = (of("out", 4, 3), of("too", 5, 7), of("out", 5, 2, 2, subtask=1))
WORDS = (
    "checkpoint 5 is restored without the output of sink 'out': 7 records in 3 pending outputs of 2 "
    "subtasks, prepared for 2 checkpoints, 4 to 5, are given up; they are lost, unless an earlier "
    "commit has published them already"
)


def holding(held: tuple[SinkHandles, ...] = HELD, key: ManifestKey = NEW) -> Manifest:
    return replace(manifest(key), sink_handles=held)


def preparation(restore: RestoreOptions) -> Preparation:
    vertices = (
        VertexFacts(0, "numbers", (NUMBERS,), 1, 128),
        VertexFacts(1, "out", (OUT,), 2, 128),
        VertexFacts(2, "too", (TOO,), 1, 128),
    )
    return Preparation(Topology(vertices), restore, stored=True)


def told(
    preparing: Preparation, *events: PrepareGeneration | PreparingEvent
) -> list[PreparationStep]:
    return [preparing.handle(event) for event in events]


def begin(generation: int = 2, held: Manifest | None = None) -> tuple[PreparingEvent, ...]:
    return (
        GenerationClaimed(generation),
        LISTED,
        CheckpointRead(held or holding()),
        GenerationResolved(current=True),
        *(Done(), Done(), LISTED),
    )


def of_sinks(generation: int) -> list[PreparationStep]:
    return [
        OpenCommitter("out", generation),
        Warn(WORDS),
        DiscardUncommitted("out", ()),
        OpenCommitter("too", generation),
        CommitRestored("too", (of("too", 5, 7),)),
        DiscardUncommitted("too", ({"rows": 7},)),
    ]


@pytest.mark.parametrize("which", ["latest", 5, "/copy/chk-00000005-g00000001"])
def test_the_output_of_one_sink_is_dropped_and_all_else_committed(which: str | int) -> None:
    preparing = preparation(RestoreOptions(which, give_up_output_of="out@5"))
    copied = isinstance(which, str) and which != "latest"
    there = CheckpointsListed((NEW,), (), "/copy", own=False) if copied else LISTED
    events = (
        *(GenerationClaimed(2), there, CheckpointRead(holding()), GenerationResolved(current=True)),
        *(() if copied else (Done(),)),
        *(Done(), LISTED),
    )
    *steps, prepared = told(preparing, PrepareGeneration(), *events, *([Done()] * 6))
    root = "/copy" if copied else None
    assert steps == [
        ClaimGeneration(),
        ListCheckpoints(root),
        ReadCheckpoint(root, NEW),
        ResolveGeneration(2, None if copied else NEW),
        *(() if copied else (BuildOn(holding()),)),
        Sweep(),
        ListCheckpoints(),
        *of_sinks(2),
    ]
    assert isinstance(prepared, GenerationPrepared)
    assert prepared.given_up == GivenUpOutput("out", 5, (HELD[0], HELD[2]))


def test_a_restart_from_the_same_checkpoint_gives_it_up_again_and_one_from_a_later_one_does_not() -> (
    None
):
    preparing = preparation(RestoreOptions(5, give_up_output_of="out@5"))
    told(preparing, PrepareGeneration(), *begin(), *([Done()] * 6))
    *steps, prepared = told(preparing, PrepareGeneration(), *begin(3), *([Done()] * 6))
    assert steps[-6:] == of_sinks(3)
    assert isinstance(prepared, GenerationPrepared)
    assert prepared.given_up is not None
    later = holding((of("out", 6, 1),), ManifestKey(6, 3))
    listed = CheckpointsListed((OLD, NEW, later.key), (GenerationClaim(3, NEW, True),), "/c")
    *steps, prepared = told(
        preparing,
        *(PrepareGeneration(), GenerationClaimed(4), listed, CheckpointRead(later)),
        *(GenerationResolved(current=True), Done(), Done(), listed, *([Done()] * 5)),
    )
    assert CommitRestored("out", (of("out", 6, 1),)) in steps
    assert isinstance(prepared, GenerationPrepared)
    assert prepared.given_up is None


def refusal(named: str, which: str | int = "latest", held: Manifest | None = None) -> str:
    """What it says, and that no sink was touched."""
    preparing = preparation(RestoreOptions(which, give_up_output_of=named))
    step = preparing.handle(PrepareGeneration())
    for event in begin(held=held):
        if isinstance(step, GenerationFailed):
            break
        step = preparing.handle(event)
    assert isinstance(step, GenerationFailed), step
    assert step.fatal
    assert isinstance(step.error, ConfigurationError)
    return str(step.error)


def test_what_is_no_sink_is_refused_before_a_generation_is_claimed() -> None:
    assert "no sink has the uid 'outt'; did you mean 'out'? The sinks are 'out', 'too'" in refusal(
        "outt@5"
    )
    assert "operator 'numbers' is no sink; The sinks are 'out', 'too'" in refusal("numbers@5")
    preparing = preparation(RestoreOptions("latest", give_up_output_of="outt@5"))
    assert isinstance(preparing.handle(PrepareGeneration()), GenerationFailed)


def test_another_checkpoint_or_one_without_such_output_is_refused() -> None:
    assert "chose checkpoint 5; leave it out once the job is past checkpoint 4" in refusal("out@4")
    nothing = holding((of("too", 5, 7), of("out", 5)))
    assert "checkpoint 5 holds no output of sink 'out'; leave it out" in refusal(
        "out@5", held=nothing
    )


@pytest.mark.parametrize("which", [None, "none"])
def test_a_start_from_the_beginning_has_no_output_to_give_up(which: str | None) -> None:
    with pytest.raises(ConfigurationError, match='give_up_output_of="out@5" has no effect'):
        RestoreOptions(which, give_up_output_of="out@5")


@given(st.text(min_size=1), st.integers(1, 2**63))
def test_any_uid_can_be_named(uid: str, checkpoint_id: int) -> None:
    assert output_of(f"{uid}@{checkpoint_id}") == (uid, checkpoint_id)


@pytest.mark.parametrize("named", ["out", "out@", "@7", "out@0", "out@x", "out@-1", 7, True, ""])
def test_what_names_no_output_is_refused(named: object) -> None:
    with pytest.raises(ConfigurationError, match='"out@7", not'):
        RestoreOptions("latest", give_up_output_of=named)  # type: ignore[arg-type]


@given(
    st.lists(
        st.builds(
            lambda uid, checkpoint, subtask, rows: of(uid, checkpoint, *rows, subtask=subtask),
            st.sampled_from(["out", "too"]),
            st.integers(1, 5),
            st.integers(0, 1),
            st.lists(st.none() | st.integers(0, 9), max_size=3),
        ),
        max_size=8,
    )
)
def test_each_output_of_a_checkpoint_is_either_committed_or_said_to_be_lost(
    held: list[SinkHandles],
) -> None:
    preparing = preparation(RestoreOptions(5, give_up_output_of="out@5"))
    stored, step = holding(tuple(held)), preparing.handle(PrepareGeneration())
    committed: list[SinkHandles] = []
    for event in (*begin(held=stored), *([Done()] * 6)):
        if isinstance(step, GenerationFailed | GenerationPrepared):
            break
        if isinstance(step, CommitRestored):
            committed += step.held
        step = preparing.handle(event)
    full = [part for part in held if part.handles]
    if isinstance(step, GenerationFailed):
        assert not any(part.uid == "out" for part in full)
        return
    assert isinstance(step, GenerationPrepared)
    assert step.given_up is not None
    assert [*step.given_up.held] == [part for part in full if part.uid == "out"]
    assert committed == [part for part in full if part.uid == "too"]
    rows = [handle.get("rows") for part in step.given_up.held for handle in part.handles]
    assert step.given_up.outputs == len(rows)
    assert step.given_up.records == (None if None in rows else sum(map(int, rows)))


def test_a_commit_that_can_never_succeed_says_the_way_out() -> None:
    preparing = preparation(RestoreOptions("latest"))
    told(preparing, PrepareGeneration(), *begin(), Done())
    failed = preparing.handle(StepFailed(SinkDataError("no such column")))
    assert isinstance(failed, GenerationFailed)
    assert failed.fatal
    assert type(failed.error) is SinkDataError
    assert str(failed.error).startswith("no such column. Checkpoint 5 cannot be restored until")
    assert 'restore=5 give_up_output_of="out@5"' in str(failed.error)


def test_an_outage_advises_nobody_to_give_up_output() -> None:
    preparing = preparation(RestoreOptions("latest"))
    told(preparing, PrepareGeneration(), *begin(), Done())
    down = StorageError("no answer")
    assert preparing.handle(StepFailed(down)) == GenerationFailed(down, fatal=False)


def test_output_of_a_sink_that_the_job_no_longer_has_is_said_to_be_lost() -> None:
    held = (of("gone", 5, 4), *HELD)
    preparing = preparation(RestoreOptions("latest", allow_non_restored_state=True))
    *_, warning = told(preparing, PrepareGeneration(), *begin(held=holding(held))[:3])
    assert isinstance(warning, Warn)
    assert "without the output of sink 'gone': 4 records" in warning.text
    assert warning.text.endswith("the job has no sink of that uid any more")
