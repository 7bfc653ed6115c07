"""Records get at least half of the time, whatever the interval, the mode and the time of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.modes import MODES
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.job_events import JobCommand, RecordHistory, SetTimer, TimerKind
from minirt.protocol.reports import CheckpointReport
from minirt.protocol.savepoints import Savepoints
from tests.protocol.parts import SINK, SOURCE, VERTICES, acknowledged, declined

BARRIER_MODES = [name for name in MODES if name not in ("uncoordinated", "communication_induced")]
"""The others make a checkpoint of snapshots that were taken before it: see the tests of their family."""

SECONDS = st.floats(0.001, 500.0)


@dataclass(frozen=True)
class Fate:
    """How long a checkpoint takes, and whether a subtask declines it then."""

    took_s: float
    fails: bool = False


@dataclass
class Lived:
    """One checkpoint, by the clock of the coordinator."""

    triggered_at: float
    ended_at: float
    report: CheckpointReport


def live(settings: CheckpointSettings, fates: Sequence[Fate]) -> list[Lived]:
    """One checkpoint after the other, each as soon as it is due."""
    checkpoints = CheckpointCoordinator(
        *("job", 1, 1, settings, VERTICES, frozenset([SOURCE, SINK]), Savepoints(16))
    )
    commands, lived = checkpoints.on_running(0.0), list[Lived]()
    for id, fate in enumerate(fates, 1):
        at = due_at(commands)
        assert checkpoints.on_trigger_timer(id, at)
        ended_at = at + fate.took_s
        checkpoints.on_acknowledged(acknowledged(id, SOURCE), ended_at)
        if fate.fails:
            commands = checkpoints.on_declined(declined(id, SINK), ended_at)
        else:
            checkpoints.on_acknowledged(acknowledged(id, SINK), ended_at)
            commands = checkpoints.on_manifest_stored(id, ended_at)
        [report] = [one.report for one in commands if isinstance(one, RecordHistory)]
        lived.append(Lived(at, ended_at, report))
    return lived


def due_at(commands: Sequence[JobCommand]) -> float:
    [at] = [
        one.at
        for one in commands
        if isinstance(one, SetTimer) and one.timer.kind is TimerKind.TRIGGER
    ]
    return at


def settings_of(mode: str, interval_s: float, min_pause_s: float = 0.0) -> CheckpointSettings:
    modes = dict(MODES)
    return CheckpointSettings(
        *(mode, interval_s),
        timeout_s=1e6,
        min_pause_s=min_pause_s,
        tolerable_failures=1000,
        modes=modes,
    )


@pytest.mark.parametrize("mode", BARRIER_MODES)
@given(
    interval_s=SECONDS,
    min_pause_s=st.just(0.0) | SECONDS,
    fates=st.lists(st.builds(Fate, SECONDS, st.booleans()), min_size=2, max_size=8),
)
def test_records_get_at_least_half_of_the_time(
    mode: str, interval_s: float, min_pause_s: float, fates: list[Fate]
) -> None:
    settings = settings_of(mode, interval_s, min_pause_s)
    for before, after in pairwise(live(settings, fates)):
        took_s = before.ended_at - before.triggered_at
        alone_s = after.triggered_at - before.ended_at
        assert alone_s >= took_s * (1 - 1e-9)
        holds = mode == "epoch"  # Its interval begins with the end of the checkpoint.
        begins_at = before.ended_at if holds else before.triggered_at
        wanted_at = max(begins_at + interval_s, before.ended_at + min_pause_s)
        assert after.triggered_at == pytest.approx(max(wanted_at, before.ended_at + took_s))
        put_off_s = after.triggered_at - wanted_at
        assert before.report.put_off_s == pytest.approx(put_off_s, abs=1e-6)


@pytest.mark.parametrize("mode", BARRIER_MODES)
@given(
    interval_s=SECONDS,
    parts=st.lists(st.floats(0.0, 0.499), min_size=2, max_size=8),
)
def test_a_checkpoint_of_less_than_half_an_interval_puts_nothing_off(
    mode: str, interval_s: float, parts: list[float]
) -> None:
    fates = [Fate(part * interval_s) for part in parts]
    lived = live(settings_of(mode, interval_s), fates)
    assert [one.report.put_off_s for one in lived] == [0.0] * len(parts)
    assert all("put_off_s" not in one.report.to_plain() for one in lived)
    for before, after in pairwise(lived):
        begins_at = before.ended_at if mode == "epoch" else before.triggered_at
        assert after.triggered_at == begins_at + interval_s


def test_the_history_on_storage_tells_it() -> None:
    [first, _] = live(settings_of("unaligned", 1.0), [Fate(3.0), Fate(1.0)])
    plain = first.report.to_plain()
    assert plain["put_off_s"] == 3.0
    assert CheckpointReport.from_plain(plain).put_off_s == 3.0
    del plain["put_off_s"]  # As an earlier version wrote it.
    assert CheckpointReport.from_plain(plain) == replace(
        CheckpointReport.from_plain(first.report.to_plain()), put_off_s=0.0
    )
