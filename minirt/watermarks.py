"""How a source tells the event time of its records, and how far event time has advanced: watermarks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, Unpack, get_args

from minirt.errors import ConfigurationError
from minirt.generics import T_contra
from minirt.units import Duration, milliseconds, seconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

TimestampSpec = str | Callable[[Any], Any]
Emission = Literal["periodic", "per record"]


class WatermarkGenerator(ABC, Generic[T_contra]):
    """Tells how far event time is in one split: what `Watermarks.generated` makes for each split.

    Override `watermark`, and `on_batch` or `on_event`. Records are only to be looked at: they go on to the
    operators. A generator that looks at none may go by a clock.

    It is not part of checkpoints. A restored split has a new one, and event time goes back for nobody.
    """

    def on_batch(
        self, records: Sequence[T_contra] | pa.RecordBatch, timestamps: npt.NDArray[np.int64]
    ) -> None:
        """Some records come, in order, with their event times in milliseconds: columns if the source reads
        such, else a list. With `emit="per record"` there is one at a time.

        Unless it is overridden, `on_event` is called for each of them.
        """
        if type(self).on_event is WatermarkGenerator.on_event:
            return
        from minirt.data.batch import Columns

        rows = records if isinstance(records, list) else Columns(records).rows().records
        for record, timestamp in zip(rows, timestamps.tolist(), strict=True):
            self.on_event(record, timestamp)

    def on_event(self, record: T_contra, timestamp: int) -> None:
        """A record comes, with its event time in milliseconds. Columns come as dicts, one a row."""

    @abstractmethod
    def watermark(self) -> int | dt.datetime | None:
        """Every later record of the split is expected to be newer than this; None while nothing is known.

        It is a time as `timestamp` may give it. One that is earlier than the one before changes nothing.
        """


class _Options(TypedDict, total=False):
    """What all kinds of watermarks take."""

    emit: Emission
    idle_timeout: Duration | None
    max_drift: Duration | None
    drift_group: str | None


@dataclass(frozen=True, slots=True)
class Watermarks:
    """How event time is read from records, and how far it has advanced.

    `timestamp` is a column name or a function of the record; its values are datetimes (UTC if they
    carry no zone), dates or ints of milliseconds. A source that stays silent for `idle_timeout`
    seconds no longer holds back the watermark of its consumers.

    A source tells its watermark at most every `Limits.watermark_interval_s`. With `emit="per record"` it
    tells it behind each record that advances it, before the next one.

    With `max_drift`, splits whose event time is further than that ahead of the slowest one of the drift
    group are not read until it has caught up. All sources with the same `drift_group` are one group.
    """

    timestamp: TimestampSpec
    bound_ms: int = 0
    idle_timeout: float | None = None
    max_drift_ms: int | None = None
    drift_group: str | None = None
    emit: Emission = "periodic"
    column: str | None = None
    """The column that holds the watermark."""
    generator: Callable[[], WatermarkGenerator[Any]] | None = None

    @classmethod
    def bounded(
        cls, bound: Duration, *, timestamp: TimestampSpec, **options: Unpack[_Options]
    ) -> Watermarks:
        """Records are at most `bound` older than the newest one before them."""
        return cls(timestamp, milliseconds(bound, "bound"), **_plain(options))

    @classmethod
    def monotonous(cls, *, timestamp: TimestampSpec, **options: Unpack[_Options]) -> Watermarks:
        """Records of a split never go back in time."""
        return cls(timestamp, **_plain(options))

    @classmethod
    def from_column(
        cls, column: str, *, timestamp: TimestampSpec, **options: Unpack[_Options]
    ) -> Watermarks:
        """Records say it: all that come behind one in its split are newer than its value of `column`.

        Values are times as those of `timestamp`; null says nothing.
        """
        return cls(timestamp, column=column, **_plain(options))

    @classmethod
    def generated(
        cls,
        generator: Callable[[], WatermarkGenerator[Any]],
        *,
        timestamp: TimestampSpec,
        **options: Unpack[_Options],
    ) -> Watermarks:
        """As objects of your own say, which the class, or function, `generator` makes for each split."""
        return cls(timestamp, generator=generator, **_plain(options))

    def __post_init__(self) -> None:
        if not (callable(self.timestamp) or _is_name(self.timestamp)):
            raise ConfigurationError(
                f"timestamp is a column name or a function, not {self.timestamp!r}"
            )
        self._check_bound()
        idle: Any = self.idle_timeout
        if idle is not None and (not isinstance(idle, int | float) or not idle > 0):
            raise ConfigurationError(
                f"idle_timeout is a number of seconds, not {idle!r}; Watermarks.bounded and "
                'Watermarks.monotonous take durations, such as "5s"'
            )
        if self.emit not in get_args(Emission):
            raise ConfigurationError(f"emit is 'periodic' or 'per record', not {self.emit!r}")
        self._check_drift()

    def _check_bound(self) -> None:
        bound: Any = self.bound_ms
        if not isinstance(bound, int) or isinstance(bound, bool) or bound < 0:
            raise ConfigurationError(
                f"bound_ms is a number of milliseconds, not {bound!r}; Watermarks.bounded takes "
                'durations, such as "5s"'
            )
        if self.column is not None and not _is_name(self.column):
            raise ConfigurationError(
                f"Watermarks.from_column takes the name of a column, not {self.column!r}"
            )
        if (bound > 0) + (self.column is not None) + (self.generator is not None) > 1:
            raise ConfigurationError(
                "a watermark comes from bound_ms, from a column, or from a generator: give one of them"
            )

    def _check_drift(self) -> None:
        drift: Any = self.max_drift_ms
        if drift is not None and (type(drift) is not int or drift <= 0):
            raise ConfigurationError(
                f"max_drift_ms is a number of milliseconds above 0, not {drift!r}; Watermarks.bounded "
                'and Watermarks.monotonous take durations as max_drift, such as "5min"'
            )
        group: Any = self.drift_group
        if group is None:
            return
        if drift is None:
            raise ConfigurationError(
                f"drift_group={group!r} says which sources wait for each other, and has no effect without "
                'max_drift, which says from when on, such as "5min"'
            )
        if not isinstance(group, str) or not group:
            raise ConfigurationError(f"drift_group is a name, not {group!r}")


def _is_name(given: object) -> bool:
    return isinstance(given, str) and bool(given)


def _plain(options: _Options) -> dict[str, Any]:
    """The options as the fields of `Watermarks` have them. Raises ConfigurationError for any other."""
    known = _Options.__annotations__
    if unknown := [name for name in options if name not in known]:
        raise ConfigurationError(
            f"Watermarks have no option {unknown[0]!r}; there are: timestamp, {', '.join(known)}"
        )
    return {
        "emit": options.get("emit", "periodic"),
        "idle_timeout": _idle(options.get("idle_timeout")),
        "max_drift_ms": _drift(options.get("max_drift")),
        "drift_group": options.get("drift_group"),
    }


def _idle(timeout: Duration | None) -> float | None:
    if timeout is None:
        return None
    value = seconds(timeout, "idle_timeout")
    if value == 0:
        raise ConfigurationError("idle_timeout must be positive")
    return value


def _drift(drift: Duration | None) -> int | None:
    if drift is None:
        return None
    value = milliseconds(drift, "max_drift")
    if value == 0:
        raise ConfigurationError(
            "max_drift must be positive: to pause for less makes no source wait"
        )
    return value
