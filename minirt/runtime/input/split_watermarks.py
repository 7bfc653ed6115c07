"""How far event time is in one split, as its records tell, or a generator of the user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from minirt.data.batch import Batch, Columns
from minirt.errors import ConfigurationError, SourceDataError
from minirt.generics import U
from minirt.monitoring.logs import logger_of
from minirt.operators.common.calling import Calling
from minirt.operators.event_time import NO_WATERMARK, check_range, told_watermarks
from minirt.units import event_time_ms
from minirt.watermarks import WatermarkGenerator, Watermarks

logger = logger_of("worker")

Times = npt.NDArray[np.int64]


class SplitWatermark(ABC):
    """The watermark of one split, which never goes back."""

    @abstractmethod
    def load(self, batch: Batch, times: Times) -> None:
        """Take the next records of the split, which are not given out yet. Raises SourceDataError."""

    @abstractmethod
    def current(self) -> int:
        """`NO_WATERMARK` while nothing is known."""

    def ahead(self, position: int) -> int:
        """A watermark that no record from this position on is behind, as far as they can tell before they
        are given out; else `NO_WATERMARK`."""
        return NO_WATERMARK

    @abstractmethod
    def see(self, start: int, stop: int) -> None:
        """These of the records are given out."""

    @abstractmethod
    def see_until(self, start: int, stop: int, watermark: int) -> int:
        """These of the records are given out, but none behind one that brings more than this `watermark`.

        Returns where they end.
        """


def split_watermark(strategy: Watermarks, operator: str, split: str) -> SplitWatermark:
    """How event time advances in a split that is read from now on. Raises MinirtError."""
    if strategy.generator is not None:
        return _Generated(strategy, operator, split)
    return _Told(strategy)


class _Told(SplitWatermark):
    """Each record tells a watermark: by its event time and a bound, or in a column."""

    def __init__(self, strategy: Watermarks) -> None:
        self._behind_ms = strategy.bound_ms + 1
        self._column = strategy.column
        self._current = NO_WATERMARK
        self._told: Times
        self._times: Times

    def load(self, batch: Batch, times: Times) -> None:
        self._times = times
        if self._column is None:
            self._told = times - self._behind_ms
        else:
            self._told = told_watermarks(batch, self._column)

    def current(self) -> int:
        return self._current

    def ahead(self, position: int) -> int:
        return min(int(self._told[position]), int(self._times[position]) - 1)

    def see(self, start: int, stop: int) -> None:
        self._current = max(self._current, int(self._told[start:stop].max()))

    def see_until(self, start: int, stop: int, watermark: int) -> int:
        more = self._told[start:stop] > watermark
        place = int(more.argmax())
        if more[place]:
            stop = start + place + 1
        self.see(start, stop)
        return stop


class _Generated(SplitWatermark):
    """A generator of the user sees the records."""

    def __init__(self, strategy: Watermarks, operator: str, split: str) -> None:
        assert strategy.generator is not None
        self._label = label = f"the watermark generator of source {operator}, split {split}"
        self._caller = f"{operator}, watermark generator of split {split},"
        self._seen: object = None
        """The records that it was shown last."""
        self._current = NO_WATERMARK
        self._warned = False
        self._batch: Batch
        self._times: Times
        self._generator = self._checked(strategy.generator)
        if not isinstance(self._generator, WatermarkGenerator):
            raise ConfigurationError(
                f"{label}: Watermarks.generated was given what makes {type(self._generator).__name__}, "
                "and not a rt.WatermarkGenerator"
            )

    def load(self, batch: Batch, times: Times) -> None:
        self._batch, self._times = batch, times

    def current(self) -> int:
        found = self._checked(self._generator.watermark)
        if found is None:
            return self._current
        try:
            watermark = event_time_ms(found)
        except TypeError as error:
            raise SourceDataError(f"{self._label} gives {found!r}: {error}") from error
        check_range(watermark, watermark, self._label, "a watermark")
        if watermark < self._current and not self._warned:
            self._warned = True
            message = "%s went back by %d ms. A watermark never does, so that before it holds on"
            logger.warning(message, self._label, self._current - watermark)
        self._current = max(watermark, self._current)
        return self._current

    def see(self, start: int, stop: int) -> None:
        batch = self._batch.slice(start, stop)
        records = batch.table if isinstance(batch, Columns) else batch.records
        times = self._times[start:stop]
        self._seen = records
        by_event = type(self._generator).on_batch is WatermarkGenerator.on_batch
        with Calling(self._caller, None if by_event else records):
            self._generator.on_batch(records, times)

    def see_until(self, start: int, stop: int, watermark: int) -> int:
        for place in range(start, stop):
            self.see(place, place + 1)
            if self.current() > watermark:
                return place + 1
        return stop

    def _checked(self, call: Callable[[], U]) -> U:
        """What the user's code returns. Raises UserCodeError."""
        with Calling(self._caller, self._seen):
            return call()
