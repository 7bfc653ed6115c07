<<<<<<< HEAD
"""Every registered checkpoint mode keeps the contract, and modes are found by name."""
=======
"""Every mode of the registry keeps the contract, and the contract finds modes that do not."""
>>>>>>> sim

from __future__ import annotations

from collections.abc import Callable
<<<<<<< HEAD
from dataclasses import dataclass

import pytest

import minirt.modes
from minirt.errors import ConfigurationError
from minirt.modes import DEFAULT_MODE, ENTRY_POINT_GROUP, MODES, find_mode
from minirt.modes.aligned import Aligned
from minirt.protocol.barriers import CheckpointMode
from tests.contracts.mode_contract import ModeContract


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
class TestRegisteredModes(ModeContract):
    def test_is_registered_under_its_name(self, mode: CheckpointMode) -> None:
        assert MODES[mode.name] is mode
        assert find_mode(mode.name) is mode


class Added(Aligned):
    name = "added"


@dataclass
class EntryPoint:
    """What another package declares."""

    name: str
    load: Callable[[], object]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Callable[[EntryPoint], None]:
    """Has the installed packages declare this entry point as a mode."""

    def declare(point: EntryPoint) -> None:
        declared = {ENTRY_POINT_GROUP: [point]}
        monkeypatch.setattr(minirt.modes, "entry_points", lambda group: declared[group])

    return declare


def test_default_mode_is_registered_and_exactly_once() -> None:
    assert find_mode(DEFAULT_MODE).exactly_once


def test_name_may_be_written_with_hyphens() -> None:
    assert find_mode("at-least-once") is MODES["at_least_once"]


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    known = "aligned, at_least_once, unaligned"
    with pytest.raises(ConfigurationError, match=f"no checkpoint mode 'none'; known are {known}"):
        find_mode("none")


def test_mode_object_is_returned_as_it_is() -> None:
    mode = Added()
    assert find_mode(mode) is mode


def test_class_instead_of_an_instance_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Added'> is no checkpoint mode: it is a class"):
        find_mode(Added)  # type: ignore[arg-type]


def test_object_that_is_no_mode_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(ConfigurationError, match=r"it lacks .*'on_arrived', 'on_reached'"):
        find_mode(17)  # type: ignore[arg-type]


def test_mode_of_another_package_is_found_by_its_entry_point(
    declare: Callable[[EntryPoint], None],
) -> None:
    declare(EntryPoint("added", lambda: Added))
    assert isinstance(find_mode("added"), Added)
    with pytest.raises(ConfigurationError, match="known are added, aligned, at_least_once"):
        find_mode("missing")


def test_built_in_mode_is_not_replaced_by_an_entry_point(
    declare: Callable[[EntryPoint], None],
) -> None:
    declare(EntryPoint("aligned", lambda: Added))
    assert find_mode("aligned") is MODES["aligned"]


def test_entry_point_that_makes_no_mode_is_refused(declare: Callable[[EntryPoint], None]) -> None:
    declare(EntryPoint("added", lambda: object))
    with pytest.raises(ConfigurationError, match="is no checkpoint mode: it lacks"):
        find_mode("added")
=======

import pytest

from minirt.modes import MODES
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.protocol.barriers import (
    Alignment,
    BarrierHandler,
    BlockChannel,
    CheckpointMode,
    Command,
)
from tests.contracts.mode_contract import ModeContract


class TestModesOfTheRegistry(ModeContract):
    @pytest.fixture(params=sorted(MODES))
    def mode(self, request: pytest.FixtureRequest) -> CheckpointMode:
        return MODES[request.param]


class Careless(AtLeastOnce):
    """Claims to be exact, and goes on reading behind barriers."""

    exactly_once = True


class Blocking(Aligned):
    """Blocks the last channel too, behind the unblocking of all."""

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return [BlockChannel(channel)]


@pytest.mark.parametrize(
    ("mode", "broken"),
    [
        (Careless(), ModeContract.test_an_exactly_once_snapshot_is_a_consistent_cut),
        (Blocking(), ModeContract.test_all_records_are_read_and_all_channels_free_in_the_end),
    ],
)
def test_the_contract_finds_a_mode_that_breaks_it(
    mode: CheckpointMode, broken: Callable[..., None]
) -> None:
    with pytest.raises(AssertionError):
        broken(ModeContract(), mode=mode)


def test_the_contract_finds_a_frame_that_forgets_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BarrierHandler, "on_abort", lambda self, checkpoint_id: [])
    with pytest.raises(AssertionError):
        ModeContract.test_an_abort_at_any_time_blocks_nothing_for_ever(
            ModeContract(), mode=Aligned()
        )


def test_the_contract_finds_a_frame_that_forgets_ended_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BarrierHandler, "on_channel_ended", lambda self, channel, now: [])
    with pytest.raises(AssertionError):
        ModeContract.test_each_checkpoint_is_taken_once_and_finished_or_subsumed(
            ModeContract(), mode=AtLeastOnce()
        )
>>>>>>> sim
