"""The folder in which micro-batches of a streaming query land, for a job that reads them in order.

    batch-000000000007/part-00003-....parquet    what the query's batch 7 has for split 3
    passed                                       batches below this number were deleted
    run, failed                                  which run of the query writes, and why it has failed

A batch appears whole, by a rename, and once: Spark runs a batch again, with the same number and rows, if
it does not know whether it was through. One query writes, any number of subtasks read.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from minirt.errors import SourceDataError
from minirt.io.base import Offset, SplitReader
from minirt_connectors.spark.parquet_reader import ParquetFileReader, ParquetFilesReader

POLL_S = 0.1
"""How long a reader waits before it looks for the next batch, and the query before it looks for room."""

_BATCH = re.compile(r"batch-(\d{12})")


@dataclass(frozen=True, slots=True)
class Landing:
    """What is in the folder; other processes see and change the same."""

    folder: Path

    def batch(self, number: int) -> Path:
        return self.folder / f"batch-{number:012}"

    def landed(self) -> list[int]:
        """The batches that are there, ascending."""
        found = (_BATCH.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def next_number(self) -> int:
        """Batches below it have landed, though they may have been deleted since."""
        return max([self.passed(), *(number + 1 for number in self.landed())])

    def publish(self, aside: Path, number: int) -> None:
        """What was written aside is batch `number` from now on."""
        os.rename(aside, self.batch(number))

    def passed(self) -> int:
        """Batches below this number are gone."""
        try:
            return int((self.folder / "passed").read_text())
        except FileNotFoundError:
            return 0

    def delete_below(self, number: int) -> None:
        """Delete the batches below this number, and say so first."""
        gone = [batch for batch in self.landed() if batch < number]
        if not gone:
            return
        self._write("passed", str(max(number, self.passed())))
        for batch in gone:
            shutil.rmtree(self.batch(batch), ignore_errors=True)

    def bytes(self) -> int:
        """The size of the batches that are there."""
        sizes = 0
        for number in self.landed():
            for path in self.batch(number).glob("part-*.parquet"):
                try:
                    sizes += path.stat().st_size
                except FileNotFoundError:  # Deleted just now.
                    continue
        return sizes

    def failure(self) -> str | None:
        """Why the query has ended, if it failed."""
        try:
            return (self.folder / "failed").read_text()
        except FileNotFoundError:
            return None

    def begin(self, run: str) -> None:
        """From now on this run of the query writes, and what became of earlier ones is of no matter."""
        self._write("run", run)
        (self.folder / "failed").unlink(missing_ok=True)

    def fail(self, run: str, reason: str) -> None:
        """This run has failed; an event of an earlier one may come late."""
        if (self.folder / "run").read_text() == run:
            self._write("failed", reason)

    def _write(self, name: str, text: str) -> None:
        aside = self.folder / f".{name}"
        aside.write_text(text)
        os.replace(aside, self.folder / name)


class LandedReader(SplitReader):
    """One split: what the batches have for it, in their order.

    The offset is `[batch, offset in its files]`.
    `split` None stands for all files of a batch, one after the other.

    Raises SourceDataError if the query has failed and nothing is left to read, and if batches that the
    offset needs were deleted.
    """

    def __init__(
        self, landing: Landing, split: int | None, schema: pa.Schema, offset: Offset
    ) -> None:
        self._landing = landing
        self._split = split
        self._schema = schema
        self._number: int
        self._number, inner = offset or (0, None)
        self._reader: ParquetFileReader | ParquetFilesReader | None = None
        self._look_at = 0.0
        passed = landing.passed()
        if self._number < passed:
            raise SourceDataError(
                f"batches below {passed} of {landing.folder} were deleted behind checkpoints of a job, and "
                f"batch {self._number} is needed; restore a newer checkpoint, or begin with another name"
            )
        self.offset = [self._number, inner]
        if inner is not None and not self._open(inner):
            raise SourceDataError(f"batch {self._number} of {landing.folder} is gone")

    def read(self) -> pa.RecordBatch | list[object]:
        if self._reader is None and not self._open_next():
            return []
        assert self._reader is not None
        batch = self._reader.read()
        if batch is not None:
            self.offset = [self._number, self._reader.offset]
            return batch if batch.schema.equals(self._schema) else batch.cast(self._schema)
        self.close()
        self._number += 1
        self.offset = [self._number, None]
        return []

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _open_next(self) -> bool:
        """Open what the next batch has for this split, if it is there; pass over batches without."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        failure = self._landing.failure()  # Looked at first: what landed before it is still read.
        for number in self._landing.landed():
            if number < self._number:
                continue
            self._number = number
            if self._open(None):
                self.offset = [number, None]
                return True
            self._number = number + 1
        self.offset = [self._number, None]
        if failure is not None:
            raise SourceDataError(
                f"the streaming query that writes to {self._landing.folder} has failed: {failure}"
            )
        self._look_at = now + POLL_S
        return False

    def _open(self, inner: Offset) -> bool:
        of_split = "part-*" if self._split is None else f"part-{self._split:05}-*"
        files = sorted(self._landing.batch(self._number).glob(f"{of_split}.parquet"))
        if files and self._split is None:
            self._reader = ParquetFilesReader([str(file) for file in files], inner)
        elif files:
            self._reader = ParquetFileReader(str(files[0]), inner)
        return bool(files)


@dataclass(slots=True)
class Passing:
    """Deletes batches that every split has passed, as far as checkpoints say."""

    landing: Landing
    splits: int
    known: dict[str, int]

    def committed(self, offsets: Mapping[str, Offset]) -> None:
        self.known.update({split: 0 if one is None else one[0] for split, one in offsets.items()})
        if len(self.known) == self.splits:
            self.landing.delete_below(min(self.known.values()))
