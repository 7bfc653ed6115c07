"""Every mode of the registry keeps the contract, and the contract finds modes that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minirt.modes import MODES
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.modes.unaligned import Unaligned
from minirt.protocol.barriers import (
    Alignment,
    BarrierHandler,
    BlockChannel,
    CheckpointMode,
    Command,
    StopCapture,
    TakeSnapshot,
)
from tests.contracts.mode_contract import ModeContract


class TestModesOfTheRegistry(ModeContract):
    @pytest.fixture(params=sorted(MODES))
    def mode(self, request: pytest.FixtureRequest) -> CheckpointMode:
        return MODES[request.param]


class Careless(AtLeastOnce):
    """Claims to be exact, and goes on reading behind barriers."""

    exactly_once = True


class Blind(Unaligned):
    """Does not see what still arrives ahead of the other barriers."""

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return [c for c in super().on_arrived(alignment, channel) if isinstance(c, TakeSnapshot)]


class Greedy(Unaligned):
    """Captures what arrives behind a barrier, too."""

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return [c for c in super().on_arrived(alignment, channel) if not isinstance(c, StopCapture)]


class Blocking(Aligned):
    """Blocks the last channel too, behind the unblocking of all."""

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return [BlockChannel(channel)]


@pytest.mark.parametrize(
    ("mode", "broken"),
    [
        (Careless(), ModeContract.test_an_exactly_once_snapshot_is_a_consistent_cut),
        (Blind(), ModeContract.test_an_exactly_once_snapshot_is_a_consistent_cut),
        (Greedy(), ModeContract.test_an_exactly_once_snapshot_is_a_consistent_cut),
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
