"""The interface of formats: what the value of a Kafka record holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch


class Undecodable(Exception):
    """Values that do not parse, by their places; `good` is what the others hold, in order."""

    def __init__(self, good: list[Any] | pa.RecordBatch, bad: Sequence[tuple[int, str]]) -> None:
        super().__init__(bad[0][1])
        self.good = good
        self.bad = bad


class Format(ABC):
    """Turns the values of Kafka records into records, and back. Pickled into workers."""

    binary: bool = False
    """Whether values are no text: then the side output of those that do not parse has their bytes."""

    in_arrays: bool = False
    """Whether `decode` makes arrays of Arrow from Python objects, see `Source.in_arrays`."""

    def for_topic(self, topic: str, *, writing: bool) -> Format:
        """The same, ready to read or write this topic. Called when a job is built; may ask others.

        Raises ConfigurationError for what cannot work.
        """
        return self

    @abstractmethod
    def decode(self, values: Sequence[bytes | None]) -> list[Any] | pa.RecordBatch:
        """One record for each value, at least one. Raises Undecodable."""

    @abstractmethod
    def encode(self, batch: Batch, operator: str) -> Sequence[bytes | None]:
        """One value for each record. Raises SinkDataError, naming the operator and the record."""

    def schema(self) -> pa.Schema | None:
        """The columns of what `decode` gives, if it gives columns."""
        return None
