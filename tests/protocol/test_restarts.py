"""Restart strategies against a clock that only the test moves."""

from __future__ import annotations

import pytest

from minirt import ConfigurationError, Restart


def delays(strategy, times):
    policy = strategy.start()
    return [policy.on_failure(now) for now in times]


def test_no_restart_gives_up_at_once():
    assert delays(Restart.none(), [0.0]) == [None]


def test_a_fixed_delay_restarts_as_often_as_it_says():
    strategy = Restart.fixed_delay(attempts=2, delay="500ms")
    assert delays(strategy, [0, 1000, 1_000_000, 1_000_001]) == [0.5, 0.5, None, None]


def test_a_fixed_delay_without_attempts_never_gives_up():
    assert delays(Restart.fixed_delay(attempts=None, delay=0), range(1000)) == [0.0] * 1000


def test_exponential_delays_grow_up_to_their_maximum():
    strategy = Restart.exponential_delay("1s", max="5s", multiplier=2, attempts=None)
    assert delays(strategy, range(0, 50, 10)) == [1, 2, 4, 5, 5]


def test_exponential_delays_give_up_after_failures_in_a_row():
    strategy = Restart.exponential_delay("1s", attempts=2, reset_after="1min")
    assert delays(strategy, [0, 10, 20]) == [1, 2, None]


def test_exponential_delays_begin_anew_after_a_quiet_time():
    strategy = Restart.exponential_delay("1s", attempts=2, reset_after="1min")
    assert delays(strategy, [0, 10, 72, 80, 90]) == [1, 2, 1, 2, None]


def test_the_time_that_a_restart_waits_is_not_quiet_time():
    strategy = Restart.exponential_delay("30s", max="60s", reset_after="1min")
    assert delays(strategy, [0, 89.9]) == [30, 60]
    assert delays(strategy, [0, 90]) == [30, 30]


def test_a_failure_rate_gives_up_when_too_many_failures_fall_together():
    strategy = Restart.failure_rate(failures=3, per="1min", delay="2s")
    assert delays(strategy, [0, 10, 20, 59.9]) == [2, 2, 2, None]


def test_a_failure_rate_forgets_failures_that_are_long_past():
    strategy = Restart.failure_rate(failures=3, per="1min", delay="2s")
    assert delays(strategy, [0, 10, 20, 60, 70, 79]) == [2, 2, 2, 2, 2, None]


@pytest.mark.parametrize(
    "strategy",
    [
        Restart.fixed_delay(attempts=1),
        Restart.exponential_delay(attempts=1),
        Restart.failure_rate(failures=1),
    ],
)
def test_every_start_counts_from_zero(strategy):
    first = strategy.start()
    assert first.on_failure(0) is not None
    assert first.on_failure(1) is None
    assert strategy.start().on_failure(2) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Restart.fixed_delay(attempts=0),
        lambda: Restart.fixed_delay(attempts=1.5),
        lambda: Restart.fixed_delay(delay="soon"),
        lambda: Restart.fixed_delay(delay=-1),
        lambda: Restart.exponential_delay(attempts=0),
        lambda: Restart.exponential_delay(initial=0),
        lambda: Restart.exponential_delay(initial="1min", max="1s"),
        lambda: Restart.exponential_delay(multiplier=0.5),
        lambda: Restart.exponential_delay(multiplier=float("nan")),
        lambda: Restart.exponential_delay(multiplier="2"),
        lambda: Restart.failure_rate(failures=0),
        lambda: Restart.failure_rate(per=0),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(make):
    with pytest.raises(ConfigurationError):
        make()


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Restart.none(), "no restart"),
        (Restart.fixed_delay(), "fixed delay: at most 3 restarts, each after 1 s"),
        (Restart.fixed_delay(attempts=1), "fixed delay: at most 1 restart, each after 1 s"),
        (
            Restart.exponential_delay(attempts=None),
            "exponential delay: any number of restarts in a row, after 0.05 s to 30 s, "
            "reset after 60 s without failure",
        ),
        (
            Restart.failure_rate(),
            "failure rate: at most 3 failures per 60 s, restarts after 1 s",
        ),
    ],
)
def test_a_strategy_describes_itself(strategy, words):
    assert strategy.describe() == words


def test_strategies_are_values():
    assert Restart.fixed_delay(2, "1s") == Restart.fixed_delay(2, 1.0)
    assert len({Restart.failure_rate(), Restart.failure_rate(), Restart.none()}) == 2
