"""The interface of encoders, which turn records into the bytes of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod

from minirt.data.batch import Batch


class Encoder(ABC):
    """Turns batches into the bytes of one file; holds at most a few MiB back."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take in the records. Raises SinkDataError for one that the format cannot hold."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is still held back, and the end of the file."""

    @abstractmethod
    def abandon(self) -> None:
        """Release what is held: the file is given up. Raises nothing."""
