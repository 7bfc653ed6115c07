"""Every registered checkpoint mode keeps the contract, and modes are found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings

import minirt as rt
import minirt.modes
from examples.lazy_mode import Lazy, LazyFamily
from minirt.errors import ConfigurationError
from minirt.modes import DEFAULT_MODE, ENTRY_POINT_GROUP, MODES, find_mode
from minirt.modes.aligned import Aligned
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.modes.at_least_once import AtLeastOnce
from minirt.modes.epoch import Epoch
from minirt.modes.unaligned import Unaligned
from minirt.protocol.barriers import (
    Alignment,
    BlockChannel,
    CheckpointMode,
    Command,
    StartCapture,
    StopCapture,
    TakeSnapshot,
    may_overlap,
)
from minirt.protocol.families import HasFamily
from minirt.protocol.local_pace import LocalSnapshots
from minirt.testing.contracts.mode import (
    ModeContract,
    Step,
    Wire,
    channel_sets,
    schedules,
    wires,
)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
class TestRegisteredModes(ModeContract):
    def test_is_registered_under_its_name(self, mode: CheckpointMode) -> None:
        assert MODES[mode.name] is mode
        assert find_mode(mode.name) is mode


@pytest.mark.parametrize(
    "mode",
    [
        AlignedWithTimeout(timeout=4),
        pytest.param(AlignedWithTimeout(timeout=15), marks=pytest.mark.soak),
        pytest.param(AlignedWithTimeout(timeout=None, switch_below=1), marks=pytest.mark.soak),
        AlignedWithTimeout(timeout=20, switch_below=3),
    ],
    ids=repr,
)
class TestOptionsOfAlignedWithTimeout(ModeContract):
    """An event of the contract takes a second, a record a byte."""


class TestEpochInGroups(ModeContract):
    """A group is the coordinator's matter: in a subtask the mode orders the same."""

    @pytest.fixture
    def mode(self) -> CheckpointMode:
        return Epoch(group=3)


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
    known = (
        "aligned, aligned_with_timeout, at_least_once, chandy_lamport, communication_induced, epoch"
    )
    with pytest.raises(ConfigurationError, match=f"no checkpoint mode 'none'; known are {known}"):
        find_mode("none")


def test_modes_are_not_combined_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"'unaligned_at_least_once'.* do not combine"):
        find_mode("unaligned_at_least_once")


@pytest.mark.parametrize("mode", [Aligned, AtLeastOnce, Unaligned])
def test_timeout_of_a_mode_that_has_none_is_refused_with_the_one_that_has(
    mode: type[Aligned | AtLeastOnce | Unaligned],
) -> None:
    message = rf"mode '{mode.name}' has no timeout: .*AlignedWithTimeout\(timeout"
    with pytest.raises(ConfigurationError, match=message):
        mode(timeout="1s")


@pytest.mark.parametrize("mode", ["aligned_with_timeout", AlignedWithTimeout(1, switch_below=5)])
def test_timeout_that_no_checkpoint_reaches_is_refused(mode: str | CheckpointMode) -> None:
    message = r"timeout of mode aligned_with_timeout \(1 s\) never comes: .* up after 1 s"
    with pytest.raises(ConfigurationError, match=message):
        find_mode(mode, expires_after_s=1.0)
    assert find_mode(mode, expires_after_s=1.5).name == "aligned_with_timeout"
    find_mode(AlignedWithTimeout(timeout=None, switch_below=5), expires_after_s=1.0)


OVERLAPPING = {"aligned", "at_least_once"}


@pytest.mark.parametrize("name", sorted(MODES))
def test_a_mode_that_takes_one_checkpoint_at_a_time_refuses_more(name: str) -> None:
    assert may_overlap(MODES[name]) == (name in OVERLAPPING)
    assert find_mode(name, max_concurrent=1) is MODES[name]
    if name in OVERLAPPING:
        assert find_mode(name, max_concurrent=3) is MODES[name]
        return
    message = rf"mode {name} takes one checkpoint at a time, .* is 3: .* aligned, at_least_once"
    with pytest.raises(ConfigurationError, match=message):
        find_mode(name, max_concurrent=3)


def test_a_pause_between_checkpoints_that_overlap_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"min_pause \(1 s\) .* max_concurrent=2"):
        rt.Checkpointing("there", min_pause="1s", max_concurrent=2)
    with pytest.raises(ConfigurationError, match="max_concurrent must be a whole number above 0"):
        rt.Checkpointing("there", max_concurrent=0)


@pytest.mark.parametrize("group", [0, -1, 1.5, True, "2"])
def test_a_group_of_epochs_that_is_no_positive_number_is_refused(group: Any) -> None:
    with pytest.raises(ConfigurationError, match="epoch: group must be a whole number above 0"):
        Epoch(group=group)


def test_mode_object_is_returned_as_it_is() -> None:
    mode = Added()
    assert find_mode(mode) is mode


def test_class_instead_of_an_instance_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Added'> is no checkpoint mode: it is a class"):
        find_mode(Added)  # type: ignore[arg-type]


def test_object_that_is_no_mode_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(ConfigurationError, match=r"it lacks .*'on_arrived', 'on_reached'"):
        find_mode(17)  # type: ignore[arg-type]


class WithoutFamily(Unaligned):
    """Takes snapshots by clocks of which nobody makes checkpoints."""

    name = "without_family"

    def local_snapshots(self, interval_s: float) -> LocalSnapshots:
        return LocalSnapshots(interval_s, 0.0, 1 << 20)


def test_local_snapshots_without_a_family_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="without_family has local_snapshots and no family"
    ):
        find_mode(WithoutFamily())


def test_mode_with_a_family_of_another_package_is_found_by_its_entry_point(
    declare: Callable[[EntryPoint], None],
) -> None:
    declare(EntryPoint("lazy", lambda: Lazy))
    found = find_mode("lazy")
    assert isinstance(found, HasFamily)
    assert isinstance(found.family(frozenset()), LazyFamily)


def test_mode_of_another_package_is_found_by_its_entry_point(
    declare: Callable[[EntryPoint], None],
) -> None:
    declare(EntryPoint("added", lambda: Added))
    assert isinstance(find_mode("added"), Added)
    with pytest.raises(ConfigurationError, match="known are added, aligned, aligned_with_timeout"):
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


class CapturesReached(AlignedWithTimeout):
    def on_timer(self, alignment: Alignment) -> list[Command]:
        return [
            replace(order, capture=alignment.channels) if isinstance(order, TakeSnapshot) else order
            for order in super().on_timer(alignment)
        ]


@pytest.mark.parametrize(
    "wrong", [DoesNotWait(), DoesNotCapture(), CapturesTooMuch(), CapturesReached(timeout=10)]
)
def test_contract_notices_a_wrong_mode(wrong: CheckpointMode) -> None:
    """Which examples hypothesis draws depends on what is imported: so it gets enough of them."""
    promise = ModeContract.test_every_snapshot_holds_the_records_before_its_barriers

    @settings(max_examples=3000, phases=[Phase.generate])
    @given(sent=wires(), schedule=schedules(), uncapturable=channel_sets())
    def check(sent: list[Wire], schedule: list[Step], uncapturable: frozenset[int]) -> None:
        promise.hypothesis.inner_test(ModeContract(), wrong, sent, schedule, uncapturable)

    with pytest.raises((AssertionError, ExceptionGroup)):
        check()
