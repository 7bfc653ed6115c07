"""What a standby makes of a lease that changes, or does not, by its own clock."""

from __future__ import annotations

import pytest

from minirt.errors import ConfigurationError
from minirt.protocol.lease import INTERRUPTED, Lease, LeaseTimes, LeaseWatch, Outlook

TIMES = LeaseTimes(interval_s=1.0, timeout_s=10.0)


def lease(renewals: int, ended: str | None = None) -> tuple[bytes, Lease]:
    return f"{renewals} {ended}".encode(), Lease("job", "run", 1, renewals, TIMES, ended)


def watch(timeout_s: float | None = None, *, at_once: bool = False) -> LeaseWatch:
    return LeaseWatch(20.0, timeout_s, at_once=at_once)


def outlooks(seen: LeaseWatch, found: tuple[bytes | None, Lease | None], *times: float) -> list:
    return [seen.on_look(*found, now) for now in times]


def every(step: float, begin: float, end: float) -> list[float]:
    return [begin + step * n for n in range(round((end - begin) / step) + 1)]


def test_a_job_that_renews_its_lease_is_left_alone() -> None:
    seen = watch()
    for now in range(100):
        assert seen.on_look(*lease(now), float(now)) is Outlook.WATCH


def test_a_lease_that_stays_the_same_for_the_timeout_is_silent() -> None:
    seen = watch()
    assert outlooks(seen, lease(1), *every(1, 100, 109.0)) == [Outlook.WATCH] * 10
    assert seen.on_look(*lease(1), 110.0) is Outlook.FELL_SILENT


def test_the_timeout_of_the_standby_goes_before_that_of_the_job() -> None:
    assert outlooks(watch(4.0), lease(1), *every(1, 0, 4))[-1] is Outlook.FELL_SILENT
    assert outlooks(watch(30.0), lease(1), *every(1, 0, 29))[-1] is Outlook.WATCH


def test_a_lease_that_is_not_due_yet_is_not_silent() -> None:
    assert outlooks(watch(0.1), lease(1), *every(0.1, 0, 1.9))[-1] is Outlook.WATCH
    assert outlooks(watch(0.1), lease(1), *every(0.1, 0, 2.1))[-1] is Outlook.FELL_SILENT


def test_any_change_counts_even_if_nobody_can_read_it() -> None:
    seen = watch()
    outlooks(seen, lease(1), *every(1, 0, 9))
    assert seen.on_look(b"of another version", None, 9.5) is Outlook.WATCH
    assert outlooks(seen, (b"of another version", None), *every(1, 10, 29)) == [Outlook.WATCH] * 20
    assert seen.on_look(b"of another version", None, 29.5) is Outlook.FELL_SILENT


def test_without_a_lease_the_job_gets_the_usual_time_to_begin() -> None:
    assert outlooks(watch(), (None, None), *every(1, 0, 19)) == [Outlook.WATCH] * 20
    seen = watch()
    assert outlooks(seen, (None, None), *every(1, 0, 20))[-1] is Outlook.FELL_SILENT


@pytest.mark.parametrize("ended", ["finished", "stopped", "cancelled", "failed"])
def test_a_job_that_ends_while_somebody_watches_is_over_after_the_timeout(ended: str) -> None:
    seen = watch()
    assert seen.on_look(*lease(1), 0.0) is Outlook.WATCH
    assert outlooks(seen, lease(2, ended), *every(1, 1, 10)) == [Outlook.WATCH] * 10
    assert seen.on_look(*lease(2, ended), 11.0) is Outlook.OVER


def test_a_job_whose_program_was_interrupted_goes_on_at_once() -> None:
    seen = watch()
    assert seen.on_look(*lease(1), 0.0) is Outlook.WATCH
    assert seen.on_look(*lease(2, INTERRUPTED), 1.0) is Outlook.INTERRUPTED


def test_a_job_that_was_interrupted_before_the_watch_began_goes_on_after_the_timeout() -> None:
    seen = watch()
    assert outlooks(seen, lease(2, INTERRUPTED), *every(1, 0, 9)) == [Outlook.WATCH] * 10
    assert seen.on_look(*lease(2, INTERRUPTED), 10.0) is Outlook.FELL_SILENT


def test_a_job_that_goes_on_by_itself_is_not_over() -> None:
    """`minirt rescale` stops it, and goes on in the same program."""
    seen = watch()
    outlooks(seen, lease(1), 0.0)
    outlooks(seen, lease(2, "stopped"), *every(1, 1, 9))
    assert outlooks(seen, lease(1), *every(1, 10, 19)) == [Outlook.WATCH] * 10
    assert seen.on_look(*lease(1), 20.0) is Outlook.FELL_SILENT


def test_a_job_that_began_and_ended_between_two_looks_is_over() -> None:
    seen = watch()
    assert seen.on_look(None, None, 0.0) is Outlook.WATCH
    assert outlooks(seen, lease(2, "finished"), *every(1, 1, 11))[-1] is Outlook.OVER


def test_an_end_that_was_there_before_is_old_news() -> None:
    assert outlooks(watch(), lease(1, "stopped"), *every(1, 0, 9)) == [Outlook.WATCH] * 10
    assert outlooks(watch(), lease(1, "stopped"), *every(1, 0, 10))[-1] is Outlook.FELL_SILENT


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((None, None), Outlook.NOBODY),
        (lease(1, "finished"), Outlook.NOBODY),
        (lease(1), Outlook.WATCH),
        ((b"of another version", None), Outlook.WATCH),
    ],
)
def test_at_once_is_for_jobs_that_nobody_says_to_run(
    found: tuple[bytes | None, Lease | None], expected: Outlook
) -> None:
    assert watch(at_once=True).on_look(*found, 0.0) is expected


def test_a_standby_that_was_away_has_heard_no_silence() -> None:
    """It was frozen, or could not reach the storage: so it gives the job the whole time again."""
    seen = watch()
    outlooks(seen, lease(1), *every(1, 0, 5))
    assert outlooks(seen, lease(1), *every(1, 60, 69)) == [Outlook.WATCH] * 10
    assert seen.on_look(*lease(1), 70.0) is Outlook.FELL_SILENT


def test_it_looks_often_enough_to_notice_that_it_was_away() -> None:
    seen = watch()
    assert seen.look_s == 2.0
    seen.on_look(*lease(1), 0.0)
    assert (seen.timeout_s, seen.look_s) == (10.0, 1.0)


@pytest.mark.parametrize(("interval_s", "timeout_s"), [(0.0, 1.0), (-1.0, 1.0), (5.0, 9.9)])
def test_times_that_cannot_work_are_refused(interval_s: float, timeout_s: float) -> None:
    with pytest.raises(ConfigurationError, match="lease"):
        LeaseTimes(interval_s, timeout_s)
