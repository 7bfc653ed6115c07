"""Sinks that count what they are given, and tell how old it is, before they hand it on."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from minirt.clock import SYSTEM_CLOCK
from minirt.data.batch import Batch, Columns
from minirt.errors import ConfigurationError
from minirt.io.base import Handle, Prepared, Sink, SinkContext, SinkIdentity, SinkWriter
from minirt.laboratory.notes import Notebook, buckets

_SCALES = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (0.0, 1.0))
"""A number of this size or above is since 1970 in units of so many seconds."""

_MADE_S = 0.01
"""How exactly a handle tells when its records were made."""


@dataclass(frozen=True, slots=True)
class MadeAt:
    """Where a record says when it was made: a column, a key of a dict, an attribute, a place in a tuple.

    The value is a datetime, or a number since 1970: of seconds, ms, us or ns, told by its size.
    """

    field: str

    def times(self, batch: Batch) -> npt.NDArray[np.float64]:
        """In seconds since 1970, one a record. Raises ConfigurationError for records without."""
        try:
            return _seconds(self._values(batch))
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"--latency-from {self.field}: a sink got a record that has no time there ({error!r})"
            ) from error

    def _values(self, batch: Batch) -> Sequence[Any] | npt.NDArray[Any]:
        if isinstance(batch, Columns):
            column = batch.table.column(self.field)
            return np.asarray(column.to_numpy(zero_copy_only=False))
        if not batch.records:
            return []
        first = batch.records[0]
        if isinstance(first, dict):
            return [record[self.field] for record in batch.records]
        if self.field.isdecimal():
            place = int(self.field)
            return [record[place] for record in batch.records]
        return [getattr(record, self.field) for record in batch.records]


def _seconds(values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if len(values) == 0:
        return np.empty(0)
    if isinstance(values[0], dt.datetime):
        return np.array([_aware(value).timestamp() for value in values])
    numbers = np.asarray(values)
    if np.issubdtype(numbers.dtype, np.datetime64):
        return numbers.astype("datetime64[us]").astype(np.float64) * 1e-6
    numbers = numbers.astype(np.float64)
    scale = next(scale for least, scale in _SCALES if abs(numbers[0]) >= least)
    return numbers * scale


def _aware(value: dt.datetime) -> dt.datetime:
    """As everywhere in minirt, a datetime without a zone is UTC."""
    return value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)


class MeasuredSink(Sink):
    """Hands everything on to `inner`. The program of the job reads `visible` and `committed` here."""

    def __init__(self, inner: Sink, folder: str, who: str, made_at: MadeAt | None) -> None:
        self._inner = inner
        self._folder = folder
        self._who = who
        self._made_at = made_at
        self._counted: set[tuple[int, int, int]] = set()
        self.committed = 0
        """The records whose output is visible."""
        self.commits: list[tuple[float, dict[int, int]]] = []
        """Each time that some became visible, by the monotonic clock: how many of them were how old, by
        bucket."""

    def open_writer(self, context: SinkContext) -> SinkWriter:
        notebook = Notebook(self._folder, f"{self._who}-{context.subtask}", context.generation)
        return _MeasuredWriter(self._inner.open_writer(context), notebook, context, self._made_at)

    def commit(self, handles: Sequence[Handle]) -> None:
        self._inner.commit(_own(handles))
        self._count(handles)

    def commit_restored(self, handles: Sequence[Handle]) -> None:
        self._inner.commit_restored(_own(handles))
        self._count(handles)

    def discard_uncommitted(
        self, committed: Sequence[Handle], identity: SinkIdentity, before_generation: int
    ) -> None:
        self._inner.discard_uncommitted(_own(committed), identity, before_generation)

    def on_fresh_start(self) -> None:
        self._inner.on_fresh_start()

    def validate(self) -> None:
        self._inner.validate()

    def _count(self, handles: Sequence[Handle]) -> None:
        """Each handle once: a checkpoint may be committed again."""
        now, waited = SYSTEM_CLOCK.now(), dict[int, int]()
        for handle in handles:
            seen = handle.get("seen")
            if seen is None:
                continue
            part = (seen["subtask"], seen["generation"], seen["checkpoint"])
            if part in self._counted:
                continue
            self._counted.add(part)
            self.committed += seen["records"]
            for made, count in seen["made"]:
                [bucket] = buckets(np.array([now - made * _MADE_S]))
                waited[bucket] = waited.get(bucket, 0) + count
        if waited:
            self.commits.append((time.monotonic(), waited))


def _own(handles: Sequence[Handle]) -> list[Handle]:
    """Those of the inner sink."""
    return [handle["own"] for handle in handles if "own" in handle]


class _MeasuredWriter(SinkWriter):
    def __init__(
        self, inner: SinkWriter, notebook: Notebook, context: SinkContext, made_at: MadeAt | None
    ) -> None:
        self._inner = inner
        self._notebook = notebook
        self._context = context
        self._made_at = made_at
        self._records = 0
        self._made: dict[int, int] = {}

    def write(self, batch: Batch) -> None:
        latencies = None
        if self._made_at is not None:
            latencies = self._measure(batch, self._made_at)
        self._records += len(batch)
        self._notebook.add(len(batch), latencies)
        self._inner.write(batch)

    def prepare(self, checkpoint_id: int) -> Prepared:
        prepared = self._inner.prepare(checkpoint_id)
        self._notebook.mark(checkpoint_id)
        if not prepared.handles and not self._records:
            return prepared
        seen = {
            "subtask": self._context.subtask,
            "generation": self._context.generation,
            "checkpoint": checkpoint_id,
            "records": self._records,
            "made": [list(pair) for pair in self._made.items()],
        }
        self._records, self._made = 0, {}
        handles: list[Handle] = [{"own": handle} for handle in prepared.handles]
        return Prepared([*handles, {"seen": seen}], prepared.finish)

    def release(self) -> None:
        self._inner.release()

    def close(self) -> None:
        self._notebook.close()
        self._inner.close()

    def _measure(self, batch: Batch, made_at: MadeAt) -> npt.NDArray[np.float64] | None:
        """None, and no further attempt, once a record does not tell."""
        try:
            made = made_at.times(batch)
        except ConfigurationError as error:
            self._made_at = None
            self._notebook.complain(str(error))
            return None
        found, counts = np.unique((made / _MADE_S).astype(np.int64), return_counts=True)
        for when, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._made[when] = self._made.get(when, 0) + count
        return SYSTEM_CLOCK.now() - made
