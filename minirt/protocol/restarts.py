"""Restart strategies: whether a job that failed is started again, and after how long.

A strategy is a description; `start` gives the policy that counts the failures of one run of a job.
Time is an argument: seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from minirt.errors import (
    BadRecordError,
    ConfigurationError,
    SinkDataError,
    SourceChangedError,
    UnsupportedValueError,
)
from minirt.units import Duration, positive, seconds

RESTARTS_NEVER = (
    BadRecordError,
    ConfigurationError,
    SinkDataError,
    SourceChangedError,
    UnsupportedValueError,
)
"""Errors of a worker that the next start would meet again."""

Scope = Literal["job", "subtask", "replay"]
"""What is started again after a failure: the whole job, or only the worker that is gone, if it can be.

With "replay", also one whose subtasks send to others: it does again what these have seen.
"""


class RestartPolicy(Protocol):
    """Counts the failures of one job."""

    def on_failure(self, now: float) -> float | None:
        """Seconds to wait before the job is started again; None to give up."""


class RestartStrategy(Protocol):
    """What a user chooses."""

    def start(self) -> RestartPolicy:
        """A policy that has seen no failure yet."""

    def describe(self) -> str:
        """The strategy in words, for the message of a job that gave up."""


class Restart:
    """The restart strategies to choose from.

    Delays are seconds or strings such as "10s"; `attempts=None` never gives up. All raise
    ConfigurationError for values that cannot work.

    With `scope="subtask"`, a worker whose process is gone comes back alone while all others go on, if its
    subtasks send to nobody; else the whole job restarts. It needs mode "uncoordinated" and worker
    processes on one machine. The plan says what each vertex can.

    With `scope="replay"`, so does one whose subtasks send on: it does again what others have seen, in the
    same order, which it logs where a subtask reads several channels. You promise that functions are
    deterministic: that they give the same for the same records, and ask no clock, no random number and no
    other system.
    """

    @staticmethod
    def none() -> RestartStrategy:
        """The first failure ends the job."""
        return NoRestart()

    @staticmethod
    def fixed_delay(
        attempts: int | None = 3, delay: Duration = "1s", scope: Scope = "job"
    ) -> RestartStrategy:
        """At most `attempts` restarts over the whole life of the job, each after `delay`."""
        return FixedDelay(_attempts(attempts), seconds(delay, "delay"), _scope(scope))

    @staticmethod
    def exponential_delay(
        initial: Duration = "50ms",
        max: Duration = "30s",
        multiplier: float = 2.0,
        reset_after: Duration = "1min",
        attempts: int | None = 10,
        scope: Scope = "job",
    ) -> RestartStrategy:
        """Delays grow from `initial` to `max` by `multiplier` from failure to failure.

        A job that ran for `reset_after` since its restart begins anew. Gives up after `attempts`
        restarts in a row without such a quiet time.
        """
        first, most = seconds(initial, "initial"), seconds(max, "max")
        if first == 0:
            raise ConfigurationError(f"initial must be positive, got {initial!r}")
        if most < first:
            raise ConfigurationError(f"max must be at least initial: {max!r} is below {initial!r}")
        if not _is_number(multiplier) or not 1 <= multiplier < float("inf"):
            raise ConfigurationError(
                f"multiplier must be a finite number of at least 1, got {multiplier!r}"
            )
        quiet = seconds(reset_after, "reset_after")
        return ExponentialDelay(
            *(first, most, float(multiplier), quiet, _attempts(attempts), _scope(scope))
        )

    @staticmethod
    def failure_rate(
        failures: int = 3, per: Duration = "1min", delay: Duration = "1s", scope: Scope = "job"
    ) -> RestartStrategy:
        """Restarts after `delay` unless more than `failures` fall within `per`."""
        window = seconds(per, "per")
        if window == 0:
            raise ConfigurationError(f"per must be positive, got {per!r}")
        delay_s = seconds(delay, "delay")
        return FailureRate(positive("failures", failures), window, delay_s, _scope(scope))


@dataclass(frozen=True, slots=True)
class NoRestart:
    """See `Restart.none`. It is its own policy: there is nothing to count."""

    def start(self) -> NoRestart:
        return self

    def on_failure(self, now: float) -> None:
        return None

    def describe(self) -> str:
        return "no restart"


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """See `Restart.fixed_delay`. Seconds."""

    attempts: int | None
    delay: float
    scope: Scope = "job"

    def start(self) -> RestartPolicy:
        return _FixedDelayPolicy(self)

    def describe(self) -> str:
        return f"fixed delay: {_restarts(self.attempts)}, each after {self.delay:g} s"


@dataclass(slots=True)
class _FixedDelayPolicy:
    strategy: FixedDelay
    restarts: int = 0

    def on_failure(self, now: float) -> float | None:
        if self.restarts == self.strategy.attempts:
            return None
        self.restarts += 1
        return self.strategy.delay


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """See `Restart.exponential_delay`. Seconds."""

    initial: float
    maximum: float
    multiplier: float
    reset_after: float
    attempts: int | None
    scope: Scope = "job"

    def start(self) -> RestartPolicy:
        return _ExponentialDelayPolicy(self, self.initial)

    def describe(self) -> str:
        return (
            f"exponential delay: {_restarts(self.attempts)} in a row, after {self.initial:g} s "
            f"to {self.maximum:g} s, reset after {self.reset_after:g} s without failure"
        )


@dataclass(slots=True)
class _ExponentialDelayPolicy:
    strategy: ExponentialDelay
    delay: float
    restarts: int = 0
    running_since: float = float("inf")

    def on_failure(self, now: float) -> float | None:
        if now - self.running_since >= self.strategy.reset_after:
            self.delay = self.strategy.initial
            self.restarts = 0
        if self.restarts == self.strategy.attempts:
            return None
        delay = self.delay
        self.restarts += 1
        self.running_since = now + delay
        self.delay = min(delay * self.strategy.multiplier, self.strategy.maximum)
        return delay


@dataclass(frozen=True, slots=True)
class FailureRate:
    """See `Restart.failure_rate`. Seconds."""

    failures: int
    per: float
    delay: float
    scope: Scope = "job"

    def start(self) -> RestartPolicy:
        return _FailureRatePolicy(self, deque(maxlen=self.failures))

    def describe(self) -> str:
        return (
            f"failure rate: at most {self.failures} failures per {self.per:g} s, "
            f"restarts after {self.delay:g} s"
        )


@dataclass(slots=True)
class _FailureRatePolicy:
    strategy: FailureRate
    recent: deque[float]
    """When the last failures were, the oldest first; as many as the strategy forgives."""

    def on_failure(self, now: float) -> float | None:
        full = len(self.recent) == self.strategy.failures
        if full and now - self.recent[0] < self.strategy.per:
            return None
        self.recent.append(now)
        return self.strategy.delay


def scope_of(strategy: RestartStrategy | None) -> Scope:
    """What a strategy restarts; one that does not say so restarts the job."""
    scope: Scope = getattr(strategy, "scope", "job")
    return scope


def _scope(value: Scope) -> Scope:
    if value not in get_args(Scope):
        allowed = ", ".join(map(repr, get_args(Scope)))
        raise ConfigurationError(f"scope must be one of {allowed}, got {value!r}")
    return value


def _attempts(value: int | None) -> int | None:
    return None if value is None else positive("attempts", value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _restarts(attempts: int | None) -> str:
    if attempts is None:
        return "any number of restarts"
    return "at most 1 restart" if attempts == 1 else f"at most {attempts} restarts"
