"""The interface of encoders, which turn records into the bytes of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod

from minirt.data.batch import Batch


class NextFile(Exception):
    """The file that was begun cannot hold the records, another one can; the encoder has taken in none."""


class Encoder(ABC):
    """Turns batches into the bytes of one file; holds at most a few MiB back."""

    like: object = None
    """Files can be joined into one if their encoders are equal in this, when they are ended."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take in the records. Raises SinkDataError for one that the format cannot hold, and NextFile."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is still held back, and the end of the file."""

    @abstractmethod
    def abandon(self) -> None:
        """Release what is held: the file is given up. Raises nothing."""
