"""Every registered checkpoint mode keeps the contract, and modes are found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import minirt.modes
from minirt.errors import ConfigurationError
from minirt.modes import DEFAULT_MODE, ENTRY_POINT_GROUP, MODES, find_mode
from minirt.modes.aligned import Aligned
from minirt.modes.unaligned import Unaligned
from minirt.protocol.barriers import (
    Alignment,
    BlockChannel,
    CheckpointMode,
    Command,
    StartCapture,
    StopCapture,
)
from minirt.testing.contracts.mode import ModeContract


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


class DoesNotWait(Aligned):
    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        orders = super().on_reached(alignment, channel)
        return [order for order in orders if not isinstance(order, BlockChannel)]


class DoesNotCapture(Unaligned):
    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        orders = super().on_arrived(alignment, channel)
        return [order for order in orders if not isinstance(order, StartCapture)]


class CapturesTooMuch(Unaligned):
    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        orders = super().on_arrived(alignment, channel)
        return [order for order in orders if not isinstance(order, StopCapture)]


@pytest.mark.parametrize("wrong", [DoesNotWait(), DoesNotCapture(), CapturesTooMuch()])
def test_contract_notices_a_wrong_mode(wrong: CheckpointMode) -> None:
    with pytest.raises(AssertionError):
        ModeContract().test_every_snapshot_holds_the_records_before_its_barriers(mode=wrong)
