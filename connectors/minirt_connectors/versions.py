"""Sources of tables that grow by versions: each adds files, which never change.

A job starts with all files of one version, and goes on with those that later versions add. The files of a
version are dealt to the splits in turn, so a split is always the same sequence of files, and its offset is
small: a version, a place among its files, a row, and the mark of the version.

The *mark* tells a version from another one of its number. A reader compares it when it opens, and at each
look for a later version: in a table that went back and grew again, or was made anew, the number alone would
lead to the records of somebody else.
"""

from __future__ import annotations

import datetime as dt
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from minirt.errors import ConfigurationError, MinirtError, SourceDataError
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.io.files import checked_columns
from minirt.io.remembered import Accept, Identity, behind, checked_accept, kept_identity
from minirt.units import Duration, positive, seconds

OnChange = Literal["fail", "skip"]
"""What to do with a version that takes rows away: fail, or pass over it as a whole."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version, and the files that it adds, always in the same order."""

    number: int
    files: Sequence[Any]


class VersionLog(ABC):
    """What a table says of its versions. Used by one thread. Raises SourceDataError and StorageError."""

    @abstractmethod
    def whole(self, number: int) -> Version:
        """All files that make up a version."""

    @abstractmethod
    def added(self, number: int) -> Version:
        """The files that a version adds to the one before it."""

    @abstractmethod
    def following(self, number: int) -> int | None:
        """The version behind another one; None if there is none yet."""

    def mark(self, number: int) -> str | None:
        """What tells a version from any other of its number; None if nobody can tell now."""
        return None

    def newest(self) -> int | None:
        """The newest version; None where versions are not numbered in their order."""
        return None

    @abstractmethod
    def rows(self, file: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a file, always in the same order."""


class VersionedSource(Source, ABC):
    """Reads a table as it is in one version, and then what is added to it; `bounded`: only the former.

    Without `existing`, only the latter. Raises ConfigurationError for options that cannot work.
    """

    def __init__(
        self,
        *,
        existing: bool,
        bounded: bool,
        columns: Sequence[str] | None,
        on_change: OnChange,
        splits: int | None,
        poll: Duration,
        accept: Accept | Sequence[Accept],
    ) -> None:
        if on_change not in get_args(OnChange):
            raise ConfigurationError(f"on_change must be fail or skip, got {on_change!r}")
        if bounded and not existing:
            raise ConfigurationError("bounded=True and existing=False together read nothing")
        self.accept = checked_accept(accept)
        self._existing = existing
        self._columns = checked_columns(columns)
        self._on_change: OnChange = on_change
        self.bounded = bool(bounded)
        self.interleave = True
        self._splits = None if splits is None else positive("splits", splits)
        self._poll_s = seconds(poll, "poll")

    @abstractmethod
    def first_version(self) -> tuple[int, bool]:
        """The version to begin with, and whether its own files are read or only later ones."""

    @abstractmethod
    def open_log(self, kept: Identity | None) -> VersionLog:
        """What the table says of its versions. Raises SourceChangedError if it is not the one of `kept`."""

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        number, whole = self.first_version()
        of = self._splits or parallelism
        info = {"of": of, "version": number, "whole": whole}
        return [Split(f"{part}-of-{of}", {"part": part, **info}) for part in range(of)]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return _Reader(self, split, offset)

    def moved(self, split: Split, offset: Offset, kept: Identity) -> tuple[Split, Offset]:
        """Marks are those of the other table."""
        return split, None if offset is None else [*offset[:3], None]

    @property
    def poll_s(self) -> float:
        return self._poll_s


def check_moment(name: str, asked: int | dt.datetime | None, number: str) -> None:
    """Refuse what names no version, by its `number` as the format calls it or by a time with its zone."""
    if isinstance(asked, bool) or not isinstance(asked, int | dt.datetime | None):
        raise ConfigurationError(f"{name} must be {number} or a datetime, got {asked!r}")
    if isinstance(asked, dt.datetime) and asked.tzinfo is None:
        raise ConfigurationError(f"{name} is a datetime without a time zone; give it one")


class _Reader(SplitReader):
    """The offset is a version, how many of its files for this split are read, of the next one how many
    rows, and the mark of the version, which offsets of versions up to 0.1.0 lack."""

    def __init__(self, source: VersionedSource, split: Split, offset: Offset) -> None:
        info = split.info
        self._part, self._of = info["part"], info["of"]
        self._first = info["version"]
        self._whole = info["whole"]
        self._bounded = source.bounded
        self._poll_s = source.poll_s
        self._who = repr(source)
        self._accept = source.accept
        self._log = source.open_log(kept_identity(split))
        self._version: int
        self._file: int
        self._row: int
        self._mark: str | None
        self._version, self._file, self._row, self._mark = [*(offset or (self._first, 0, 0)), None][
            :4
        ]
        self._compare()
        self._files = self._files_of(self._version)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._asked_at: float | None = None
        self._set_offset()

    def read(self) -> list[Any] | pa.RecordBatch | None:
        while True:
            while self._file < len(self._files):
                batch = self._next_of_file()
                if batch is not None:
                    return batch
            if self._bounded:
                return None
            following = self._following()
            if following is None:
                return []
            # Nothing is lost if this fails: the offset is still behind the last version.
            mark = self._log.mark(following)
            self._files = self._files_of(following)
            self._version, self._file, self._row, self._mark = following, 0, 0, mark
            self._set_offset()

    def close(self) -> None:
        self._batches = None

    def _next_of_file(self) -> pa.RecordBatch | None:
        """The next rows of the file at hand, or None at its end, from where on it is the next one."""
        file = self._files[self._file]
        try:
            if self._batches is None:
                self._batches = _from_row(self._log.rows(file), self._row)
            batch = next(self._batches, None)
        except (MinirtError, pa.ArrowException, OSError) as error:
            self._batches = None
            if isinstance(error, MinirtError):
                raise
            raise SourceDataError(
                f"version {self._version}: cannot read {file}: {error}"
            ) from error
        if batch is None:
            self._batches = None
            self._file, self._row = self._file + 1, 0
        else:
            self._row += batch.num_rows
        self._set_offset()
        return batch

    def _set_offset(self) -> None:
        self.offset = [self._version, self._file, self._row, self._mark]

    def _compare(self) -> None:
        """The table still has the version that was read, or at least all before it."""
        now = self._log.mark(self._version)
        if self._mark is None or now is None:
            newest = self._log.newest()
            if newest is not None and newest < self._version:
                self._went_back(f"the newest version of the table is {newest}")
                read = len(self._files_of(newest))
                self._version, self._file, self._row = newest, read, 0
                now = self._log.mark(newest)
        elif now != self._mark:
            self._went_back(f"the table has another version {self._version} now")
        self._mark = now or self._mark

    def _went_back(self, found: str) -> None:
        kept = f"version {self._version} of the table"
        way_on = "reading goes on behind the newest version up to that"
        behind(self._who, kept, found, way_on, self._accept)

    def _following(self) -> int | None:
        """The next version, if it is time to look for one."""
        now = time.monotonic()
        if self._asked_at is not None and now - self._asked_at < self._poll_s:
            return None
        if self._log.mark(self._version) != self._mark:
            self._compare()
        found = self._log.following(self._version)
        self._asked_at = now if found is None else None
        return found

    def _files_of(self, number: int) -> Sequence[Any]:
        if number != self._first:
            files = self._log.added(number).files
        else:
            files = self._log.whole(number).files if self._whole else []
        return files[self._part :: self._of]


def _from_row(batches: Iterator[pa.RecordBatch], row: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if row < batch.num_rows:
            yield batch.slice(row)
        row = max(0, row - batch.num_rows)
