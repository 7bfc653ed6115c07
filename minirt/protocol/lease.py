"""The lease of a job, by which a standby knows whether the job runs, and what a standby makes of it.

While a job runs, it writes its lease again and again into its checkpoint storage. A standby looks at it
now and then. It never reads a date in it: it looks whether the lease *changed*, and measures by its own
monotonic clock how long it did not. So the clocks of the two hosts have nothing to do with each other.

A lease keeps nobody from anything. It only says when another coordinator should be started; that two of
them never both commit is what generations are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from minirt.errors import ConfigurationError
from minirt.wording import named

INTERRUPTED = "interrupted"
"""How a lease ends whose program was told to end by its machine: the job itself is to go on elsewhere."""

LOOKS_PER_TIMEOUT = 10
"""How often a standby looks within the time after which it takes a job for dead."""

_AWAY_SHARE = 0.5
"""A standby that has not looked for this part of the timeout was away itself, and measures anew."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How often a job renews its lease, and after how much silence it counts as dead. In seconds."""

    interval_s: float
    timeout_s: float

    def __post_init__(self) -> None:
        if self.interval_s <= 0:
            raise ConfigurationError(
                f"{named('limits.lease_s')} must be above 0, got {self.interval_s!r}"
            )
        if self.timeout_s < 2 * self.interval_s:
            raise ConfigurationError(
                f"{named('limits.lease_timeout_s')} must be at least twice "
                f"{named('limits.lease_s')}, {2 * self.interval_s:g} s, got {self.timeout_s!r}"
            )


@dataclass(frozen=True, slots=True)
class Lease:
    """What a job says of itself each time. `renewals` grows, so no two leases of a run are equal."""

    job: str
    run: str
    """Tells the runs of a program apart."""
    generation: int
    renewals: int
    times: LeaseTimes
    ended: str | None = None
    """How the job has ended: "finished", "stopped", "cancelled", "failed", or INTERRUPTED. None while it
    runs."""
    cause: str | None = None
    """Why it failed."""
    process: str | None = None
    """The program, for who is on the same machine; None where the machine cannot tell."""


class Outlook(Enum):
    """What a standby should do."""

    WATCH = "watch on"
    NOBODY = "nobody runs the job"
    FELL_SILENT = "the job is silent"
    INTERRUPTED = "the machine of the job's program has told it to end"
    OVER = "the job is over"


class LeaseWatch:
    """What a standby has seen so far. `timeout_s` replaces that of the lease; twice its interval at least.

    How a job ended that was over before the watch began says nothing: somebody may be about to start it
    again. With `at_once` that is this standby, which then need not wait for the timeout. One that ends
    while somebody watches gets the timeout to go on by itself, at another parallelism for example. One
    whose program was interrupted goes on at once with the standby that sees it.
    """

    def __init__(self, default_s: float, timeout_s: float | None, *, at_once: bool) -> None:
        self._default_s = default_s
        self._given_s = timeout_s
        self._at_once = at_once
        self._seen: bytes | None = None
        self._lease: Lease | None = None
        self._saw_it_run = False
        self._looked_at: float | None = None
        self._since = 0.0
        """Since when nothing has changed, by the clock of the standby."""

    @property
    def timeout_s(self) -> float:
        """After how much silence the job counts as dead."""
        if self._lease is None:
            return self._default_s if self._given_s is None else self._given_s
        times = self._lease.times
        # A lease that is not due yet is no silence, whatever the standby was told.
        return (
            times.timeout_s if self._given_s is None else max(self._given_s, 2 * times.interval_s)
        )

    @property
    def look_s(self) -> float:
        """How long to wait for the next look."""
        return self.timeout_s / LOOKS_PER_TIMEOUT

    def on_look(self, seen: bytes | None, lease: Lease | None, now: float) -> Outlook:
        """The object holds `seen`, None if there is none, which means `lease`, None if nobody knows.

        Looks that failed are not told: who cannot look knows of no silence.
        """
        before, self._looked_at = self._looked_at, now
        changed = before is None or seen != self._seen
        self._seen, self._lease = seen, lease
        if changed or before is None or now - before > _AWAY_SHARE * self.timeout_s:
            self._since = now
        how = None if lease is None else lease.ended
        ended = how is not None
        if before is None and self._at_once and (seen is None or ended):
            return Outlook.NOBODY
        self._saw_it_run |= seen is not None and (not ended or (changed and before is not None))
        if how == INTERRUPTED and changed and before is not None:
            return Outlook.INTERRUPTED
        if now - self._since < self.timeout_s or before is None:
            return Outlook.WATCH
        if how == INTERRUPTED:
            return Outlook.FELL_SILENT
        return Outlook.OVER if ended and self._saw_it_run else Outlook.FELL_SILENT
