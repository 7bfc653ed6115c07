"""The seam of families: a mode from outside minirt decides what is ordered for each checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.lazy_mode import Lazy
from minirt.errors import ConfigurationError
from minirt.modes import MODES
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.families import Coordinated
from minirt.protocol.job_events import JobCommand, StoreManifest
from minirt.protocol.lines import LocalCut
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.subtask_commands import StoreSlices, TriggerCheckpoint
from minirt.protocol.uncoordinated import Uncoordinated as Lines
from tests.protocol.parts import SINK, SOURCE, VERTICES, acknowledged
from tests.protocol.test_uncoordinated import committed, files, held, local, of_line

BOTH = frozenset({SOURCE, SINK})
MODE = Lazy(every=2)


@pytest.fixture
def checkpoints() -> CheckpointCoordinator:
    """Of a source and a sink, in a mode of a family of its own, that runs since the time 0."""
    settings = CheckpointSettings(
        "lazy", 10.0, modes={"lazy": MODE}, local=MODE.local_snapshots(10.0)
    )
    made = CheckpointCoordinator("job", 1, 1, settings, VERTICES, BOTH, Savepoints(3))
    made.on_running(0.0)
    return made


def stored(commands: list[JobCommand]) -> list[str]:
    """The output that the manifest commits which is ordered."""
    [store] = commands
    assert isinstance(store, StoreManifest)
    return committed(store.manifest)


def test_a_family_from_outside_orders_lines_and_barriers(
    checkpoints: CheckpointCoordinator,
) -> None:
    for number in (1, 2):
        checkpoints.on_acknowledged(local(SOURCE, number), 3.0 + number)
        checkpoints.on_acknowledged(
            local(SINK, number, (SOURCE, 1), held=(held(number),)), 3.5 + number
        )
    [line, _] = checkpoints.on_trigger_timer(1, 10.0)
    assert line == StoreSlices(1, 1, {SOURCE: 2, SINK: 2})
    checkpoints.on_acknowledged(of_line(1, SOURCE), 11.0)
    assert stored(checkpoints.on_acknowledged(of_line(1, SINK), 11.0)) == files(1, 2)
    checkpoints.on_manifest_stored(1, 12.0)
    checkpoints.on_committed(1, 12.5)

    # Nothing is new since, so no line could be made; barriers need nothing.
    [trigger, _] = checkpoints.on_trigger_timer(2, 20.0)
    assert isinstance(trigger, TriggerCheckpoint)
    assert trigger.barrier.checkpoint_id == 2
    checkpoints.on_acknowledged(local(SINK, 3, (SOURCE, 1), held=(held(3),)), 20.5)
    checkpoints.on_acknowledged(acknowledged(2, SOURCE), 21.0)
    assert stored(checkpoints.on_acknowledged(acknowledged(2, SINK), 21.0)) == files(3)
    checkpoints.on_manifest_stored(2, 22.0)

    # A line must be ahead of the barriers in every subtask.
    assert checkpoints.on_trigger_timer(3, 30.0) == []
    checkpoints.on_acknowledged(local(SOURCE, 3), 31.0)
    [line, _] = checkpoints.on_acknowledged(local(SINK, 4, (SOURCE, 3)), 32.0)
    assert line == StoreSlices(1, 3, {SOURCE: 3, SINK: 4})


def test_nobody_comes_back_alone_while_barriers_are_under_way(
    checkpoints: CheckpointCoordinator,
) -> None:
    gone = CheckpointFailure(CheckpointFailureReason.GENERATION_FAILED, "a worker died")
    for subtask in (SOURCE, SINK):
        event = replace(local(subtask, 1), local=LocalCut(1, (), processed=()))
        checkpoints.on_acknowledged(event, 4.0)
    [line, _] = checkpoints.on_trigger_timer(1, 10.0)
    assert isinstance(line, StoreSlices)
    assert checkpoints.on_gone([SINK], gone, 11.0) is not None
    checkpoints.on_back([SINK], 12.0)
    [trigger, _] = checkpoints.on_trigger_timer(2, 30.0)
    assert isinstance(trigger, TriggerCheckpoint)
    assert checkpoints.on_gone([SINK], gone, 31.0) is None


@pytest.mark.parametrize("name", MODES)
def test_built_in_modes_go_through_the_same_seam(name: str) -> None:
    settings = CheckpointSettings(name, 10.0, modes=MODES)
    lines = name in ("uncoordinated", "communication_induced")
    assert type(settings.family(BOTH)) is (Lines if lines else Coordinated)


def test_without_periodic_checkpoints_there_are_barriers_only() -> None:
    settings = CheckpointSettings("lazy", None, modes={"lazy": MODE})
    assert type(settings.family(BOTH)) is Coordinated


def test_lines_alone_are_another_mode() -> None:
    with pytest.raises(ConfigurationError, match="lazy: every must be at least 2, got 1"):
        Lazy(every=1)
