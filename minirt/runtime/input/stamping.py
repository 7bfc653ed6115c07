"""Gives what a source reads its event time, and sorts out the records that have none that can be used."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows, dicts_of
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import BadRecordError, SourceDataError
from minirt.graph.operator_spec import Reading
from minirt.io.base import BadRecord, SplitReader
from minirt.io.lines import GOES_ON
from minirt.monitoring.logs import logger_of
from minirt.operators.common.base import shown
from minirt.operators.common.calling import Calling, ends_program
from minirt.operators.event_time import stamper

logger = logger_of("worker")

Read: TypeAlias = list[Any] | pa.RecordBatch
Load = Callable[[Batch], None]
"""Has the watermark of a split look at records with event time. Raises SourceDataError."""

_SECONDS = range(1_000_000_000, 2_200_000_000)
"""The years 2001 to 2039 in seconds. As milliseconds these are two weeks of January 1970."""


class Stamping:
    """The event time of the records of one source.

    A record without a usable event time is one that does not parse: it fails the job, is left out or goes
    to the side output `errors`, as `on_error` of the source says. That depends on the record alone, so it
    is the same however records are cut into batches.
    """

    def __init__(self, label: str, reading: Reading) -> None:
        source, self._marks = reading.source, reading.watermarks
        self._label = label
        self._stamp = stamper(reading.watermarks)
        self._goes_on = source.side_errors or source.on_error == "skip"
        self._advice = "" if source.on_error is None else f"; {GOES_ON}"
        self._checked_unit = False

    def stamped(
        self, read: Read, reader: SplitReader, split: str, load: Load
    ) -> tuple[Batch, Sequence[BadRecord]]:
        """The records that have event time, and the others. Raises MinirtError if these fail the job."""
        stamp = self._stamp
        if stamp is None or not len(read):
            return (Columns(read) if isinstance(read, pa.RecordBatch) else Rows(read)), ()
        try:
            batch = stamp(read)
            load(batch)
        except BaseException as error:
            if ends_program(error):
                raise
            return self._sorted_out(read, reader, split, load, error)
        self._check_unit(read, batch)
        return batch, ()

    def _sorted_out(
        self, read: Read, reader: SplitReader, split: str, load: Load, first: BaseException
    ) -> tuple[Batch, Sequence[BadRecord]]:
        stamp = self._stamp
        assert stamp is not None
        found = _unusable(read, lambda part: load(stamp(part)))
        if not self._goes_on:
            place, error = next(found, (None, first))
            raise self._failure(read, reader, split, place, error) from error
        errors = dict(found)
        if not errors:
            raise self._failure(read, reader, split, None, first) from first
        bad = [
            BadRecord.of(place, data, _reason(errors[number]))
            for number, (place, data) in zip(
                errors, self._origins(read, reader, split, [*errors]), strict=True
            )
        ]
        if isinstance(read, pa.RecordBatch):
            kept = np.ones(len(read), np.bool_)
            kept[[*errors]] = False
            read = read.filter(pa.array(kept))
        else:
            read = [record for place, record in enumerate(read) if place not in errors]
        batch, _ = self.stamped(read, reader, split, load)
        return batch, bad

    def _failure(
        self, read: Read, reader: SplitReader, split: str, place: int | None, error: BaseException
    ) -> Exception:
        where, record = "", None
        if place is not None:
            [(where, _)] = self._origins(read, reader, split, [place])
            record = _record(read, place)
        if isinstance(error, SourceDataError):
            at = f"; it is at {where}" if where else ""
            return type(error)(f"source {self._label}: {error}{at}{self._advice}")
        label = f"{self._label} ({where})" if where else self._label
        try:
            with Calling(label, record):
                raise error
        except Exception as named:
            return named

    def _origins(
        self, read: Read, reader: SplitReader, split: str, places: list[int]
    ) -> list[tuple[str, bytes]]:
        """Where records are, and their bytes; as good as it is known."""
        found = []
        for place, origin in zip(places, reader.locate(places), strict=True):
            if origin is None:
                text = shown(_record(read, place)).encode(errors="backslashreplace")
                origin = f"split {split}, record {place} before offset {reader.offset!r}", text
            found.append(origin)
        return found

    def _check_unit(self, read: Read, batch: Batch) -> None:
        """Warn of numbers that are times in seconds, once: they count as milliseconds."""
        times = batch.timestamps
        if self._checked_unit or times is None or not len(times):
            return
        if int(times[0]) not in _SECONDS or int(times[-1]) not in _SECONDS:
            return
        marks = self._marks
        assert marks is not None
        record = _record(read, 0)
        spec = marks.timestamp
        value = spec(record) if callable(spec) else record[spec]
        if not hasattr(value, "__index__"):
            return
        self._checked_unit = True
        first = dt.datetime.fromtimestamp(int(times[0]) / 1000, dt.UTC)
        name = "the timestamp function" if callable(spec) else f"column {spec!r}"
        logger.warning(
            "source %s: %s gives event times in January 1970, the first one is %s, from %s. Event time is "
            "in milliseconds; if these are seconds, multiply them by 1000 in timestamp=",
            self._label,
            name,
            first.isoformat(timespec="seconds"),
            shown(record),
        )


def _unusable(read: Read, check: Callable[[Read], None]) -> Iterator[tuple[int, BaseException]]:
    """The places of the records that fail the check, and why, found by halving."""
    parts = [(0, len(read))]
    while parts:
        start, stop = parts.pop()
        part = (
            read.slice(start, stop - start)
            if isinstance(read, pa.RecordBatch)
            else read[start:stop]
        )
        try:
            check(part)
        except BaseException as error:
            if ends_program(error):
                raise
            if stop - start == 1:
                yield start, error
            else:
                half = (start + stop) // 2
                parts += [(half, stop), (start, half)]


def _record(read: Read, place: int) -> Any:
    if not isinstance(read, pa.RecordBatch):
        return read[place]
    row = read.slice(place, 1)
    try:
        return dicts_of(row)[0]
    except (
        UnsupportedRecordError
    ):  # Python has no object for one of its values, perhaps for the time.
        return {name: str(row.column(name)) for name in row.schema.names}


def _reason(error: BaseException) -> str:
    if isinstance(error, BadRecordError):
        return str(error)
    return f"no event time ({type(error).__name__}: {error})"
