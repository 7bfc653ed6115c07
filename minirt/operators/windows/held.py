"""What windows of rows hold: aggregates over records as Python objects, beside the columns of a table.

Columns tell of a record only its place in the batch. The accumulators find the record there by it, and say
of a result only its place among those that are about to be given out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.aggregates import Accumulated
from minirt.data.custody import Custody
from minirt.data.errors import UnsupportedRecordError
from minirt.data.values import pack_value, unpack_value
from minirt.kernels.contract import Slots
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.results import nothing_returned
from minirt.state.accumulator import Accumulator

ROW = "\x1erow"
"""The column with the place of each record in its batch."""

Entry = list[Any]
"""A key, and what is held of the records of a window."""


@dataclass(slots=True)
class Exchange:
    """Objects on their way: the records of the batch in work with their keys, and entries given out."""

    records: Sequence[Any] = ()
    keys: Sequence[Any] = ()
    shown: list[Entry] = field(default_factory=list)

    def clear(self) -> None:
        self.records = self.keys = ()
        self.shown = []


class Held(Accumulator):
    """An entry for each slot, None without records."""

    def __init__(self, exchange: Exchange, ctx: OperatorContext) -> None:
        super().__init__([(np.object_, None)])
        self._exchange = exchange
        self._ctx = ctx

    @abstractmethod
    def begin(self, record: Any) -> Any:
        """What is held of a first record."""

    @abstractmethod
    def take_in(self, entries: Iterable[tuple[Entry, Any]]) -> None:
        """Take records into the entries that they belong to."""

    @abstractmethod
    def united(self, earlier: Any, later: Any) -> Any:
        """What is held of both, which the caller owns."""

    @abstractmethod
    def copied(self, held: Any) -> Any:
        """One that may change without the other."""

    def add(self, slots: Slots, values: pa.Array) -> None:
        [held] = self._arrays
        records, keys = self._exchange.records, self._exchange.keys
        known: list[tuple[Entry, Any]] = []
        for slot, row in zip(slots.tolist(), values.to_pylist(), strict=True):
            entry = held[slot]
            if entry is None:
                held[slot] = [keys[row], self.begin(records[row])]
            else:
                known.append((entry, records[row]))
        self.take_in(known)

    def result(self, slots: Slots) -> pa.Array:
        shown = self._exchange.shown
        first = len(shown)
        shown += self._arrays[0][slots].tolist()
        return pa.array(np.arange(first, len(shown)))

    def stored(self, slots: Slots) -> list[pa.Array]:
        return [pa.array(list(map(self._pack, self._arrays[0][slots])), pa.large_binary())]

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        pickles = self._ctx.allow_pickle
        [held] = self._arrays
        for slot, packed in zip(slots.tolist(), stored[0].to_pylist(), strict=True):
            held[slot] = None if packed is None else unpack_value(packed, allow_pickle=pickles)
            if held[slot] is not None:
                held[slot][1] = self._ctx.custody.settle(held[slot][1])

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        [held] = self._arrays
        for slot, more in zip(slots.tolist(), other._arrays[0][others], strict=True):
            if more is None:
                continue
            entry, copy = held[slot], self.copied(more[1])
            if entry is None:
                held[slot] = [more[0], copy]
            else:
                entry[1] = self.united(entry[1], copy)

    def _pack(self, entry: Entry | None) -> bytes | None:
        if entry is None:
            return None
        try:
            return pack_value(entry, allow_pickle=self._ctx.allow_pickle)
        except UnsupportedRecordError as error:
            raise UnsupportedRecordError(
                f"operator {self._ctx.label}: a window of the key {entry[0]!r} cannot be stored: {error}"
            ) from error


class _HeldRecords(Held):
    def begin(self, record: Any) -> Any:
        return [record]

    def take_in(self, entries: Iterable[tuple[Entry, Any]]) -> None:
        for entry, record in entries:
            entry[1].append(record)

    def united(self, earlier: Any, later: Any) -> Any:
        earlier += later
        return earlier

    def copied(self, held: Any) -> Any:
        return list(held)


class _HeldValue(Held):
    def __init__(
        self, exchange: Exchange, ctx: OperatorContext, function: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(exchange, ctx)
        self._function = function
        self._custody: Custody = ctx.custody
        self._trusted = ctx.custody.trusts(function)

    def begin(self, record: Any) -> Any:
        return self._custody.settle(record)

    def take_in(self, entries: Iterable[tuple[Entry, Any]]) -> None:
        function, trusted, custody = self._function, self._trusted, self._custody
        take, settles = custody.take, custody.settles
        with Calling(self._ctx.label):
            for entry, record in entries:
                value = function(entry[1], record)
                if value is None and record is not None:
                    raise nothing_returned("reduce")
                kept = value if trusted else take(value)
                entry[1] = custody.settle(kept) if settles else kept

    def united(self, earlier: Any, later: Any) -> Any:
        with Calling(self._ctx.label, later):
            value = self._function(earlier, later)
            if value is None and later is not None:
                raise nothing_returned("reduce")
            return self._custody.settle(value if self._trusted else self._custody.take(value))

    def copied(self, held: Any) -> Any:
        return self._custody.lend(held)


@dataclass(frozen=True)
class HeldRecords(Accumulated):
    """All records of a window, in the order in which they came; those of several panes or sessions in
    the order of these."""

    exchange: Exchange = field(default_factory=Exchange, kw_only=True, compare=False)
    ctx: OperatorContext | None = field(default=None, kw_only=True, compare=False)

    def result_type(self, type: pa.DataType) -> pa.DataType:
        return pa.int64()

    def accumulator(self, type: pa.DataType) -> Accumulator:
        assert self.ctx is not None
        return _HeldRecords(self.exchange, self.ctx)


@dataclass(frozen=True)
class HeldValue(HeldRecords):
    """One value of all records of a window."""

    function: Callable[[Any, Any], Any] = field(kw_only=True, compare=False)

    def accumulator(self, type: pa.DataType) -> Accumulator:
        assert self.ctx is not None
        return _HeldValue(self.exchange, self.ctx, self.function)
