"""Reads a folder to which files are added, without an end.

Each split takes the files whose names fall to it, one after another, and remembers which it has read: for
as long as they are in the folder, so that what it remembers is as small as the folder is. Which file comes
next is part of the offset before any record of it is read: a restored job goes on with the same one,
whatever has come meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from minirt.generics import T_co
from minirt.io.base import BadRecord, Offset, Source, Split, SplitReader
from minirt.io.files import InputFile, InputFiles
from minirt.io.remembered import Identity
from minirt.units import Duration, seconds

logger = logging.getLogger("minirt.sources")

_FORGET_AFTER_S = 60.0
"""A file that was read and is missing for this time is forgotten: it is read again if it comes back."""
_DIGEST_BYTES = 8
_WAS = "was"
"""Where the info of a split of a folder has the path that the folder had when the job began."""

OpenFile = Callable[[Split, Offset], SplitReader]
"""Opens a reader for a split that is a whole file, at an offset in it."""

WholeFile = Callable[[str], Split]
"""The split that is the whole file of this path."""


class FileSource(Source[T_co]):
    """A source of files at a path, which it remembers."""

    _files: InputFiles

    accept_other = "the same files lie there now, and each is read on from its place"

    def identity(self) -> Identity:
        return self._files.identity()

    def moved(self, split: Split, offset: Offset, kept: Identity) -> tuple[Split, Offset]:
        """The same files lie at another path: each is read on there, from the same place."""
        info = dict(split.info)
        if "path" in info:
            info["path"] = self._files.rebased(info["path"], kept)
        elif _WAS not in info:
            info[_WAS] = kept.name.rpartition("://")[2]
        if "part" in info and offset is not None and offset[1] is not None:
            offset = [offset[0], self._files.rebased(offset[1], kept), offset[2]]
        return Split(split.id, info), offset


class Watch:
    """What a source does that takes a folder and the option `watch`: None, or how often to look."""

    def __init__(self, files: InputFiles, every: Duration | None) -> None:
        self._files = files
        self._every_s = None if every is None else seconds(every, "watch")

    def __bool__(self) -> bool:
        return self._every_s is not None

    def check(self) -> None:
        """Raises ConfigurationError unless there is a folder to watch, or else files to read."""
        if self:
            self._files.check_folder()
        else:
            self._files.list()

    def splits(self, parts: int) -> Sequence[Split]:
        """Splits that read a folder together."""
        return [Split(f"{part}-of-{parts}", {"part": part, "of": parts}) for part in range(parts)]

    def reader(
        self, open_file: OpenFile, whole_file: WholeFile, split: Split, offset: Offset
    ) -> SplitReader:
        """The reader of a split: of a folder, or of a part of a file."""
        if self._every_s is None or "part" not in split.info:
            return open_file(split, offset)
        return WatchedReader(
            self._files,
            lambda path, inner: open_file(whole_file(path), inner),
            split,
            offset,
            self._every_s,
        )


class WatchedReader(SplitReader):
    """Its offset is what was read, as digests of names; the file at hand, if any; and the offset in it."""

    def __init__(
        self,
        files: InputFiles,
        open_file: Callable[[str, Offset], SplitReader],
        split: Split,
        offset: Offset,
        poll_s: float,
    ) -> None:
        self._files = files
        self._open_file = open_file
        self._part: int = split.info["part"]
        self._of: int = split.info["of"]
        self._here = files.folder()
        self._was: str = split.info.get(_WAS, self._here)
        """By this path of the folder, digests tell files from each other."""
        self._poll_s = poll_s
        read: bytes
        self._path: str | None
        self._inner: Offset
        read, self._path, self._inner = offset or (b"", None, None)
        self._read = _cut(read)
        self._packed = read
        self._gone_since: dict[bytes, float] = {}
        """When each file that was read was first missing from a listing, by the monotonic clock."""
        self._forget_after_s = max(_FORGET_AFTER_S, 2 * poll_s)
        self._sizes: dict[bytes, int] = {}
        """The size in bytes of each file that was read, when it was first listed."""
        self._told_changed: set[bytes] = set()
        self._told_away = False
        self._reader: SplitReader | None = None
        self._bad: list[BadRecord] = []
        self._listed_at: float | None = None
        self._skipped = 0
        self.offset = [read, self._path, self._inner]

    def read(self) -> list[Any] | pa.RecordBatch | None:
        if self._path is None:
            self._choose()
            return []
        if self._reader is None:
            self._reader = self._open_file(self._path, self._inner)
        batch = self._reader.read()
        self._bad += self._reader.take_bad_records()
        self.skipped = self._skipped + self._reader.skipped
        if batch is not None:
            self.offset = [self._packed, self._path, self._reader.offset]
            return batch
        self.close()
        self._skipped = self.skipped
        self._read.add(self._digest(self._path))
        self._packed = b"".join(sorted(self._read))
        self._path = self._inner = None
        self.offset = [self._packed, None, None]
        self._choose()
        return []

    def take_bad_records(self) -> list[BadRecord]:
        bad, self._bad = self._bad, []
        return bad

    def locate(self, places: Sequence[int]) -> Sequence[tuple[str, bytes] | None]:
        return super().locate(places) if self._reader is None else self._reader.locate(places)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _choose(self) -> None:
        """Take the next file by name, if there is one and it is time to look."""
        now = time.monotonic()
        if self._listed_at is not None and now - self._listed_at < self._poll_s:
            return
        listed = self._files.list(may_be_empty=True)
        if not listed and self._read and not self._files.folder_is_there():
            self._wait_for_the_folder(now)
            return
        there = {self._digest(file.path): file.path for file in listed}
        self._forget(there.keys(), now)
        self._tell_of_changes(listed)
        new = [
            path
            for digest, path in there.items()
            if digest not in self._read and int.from_bytes(digest) % self._of == self._part
        ]
        self._path = min(new, default=None)
        for file in listed:
            if file.path == self._path:
                self._sizes[self._digest(file.path)] = file.size
        # There may be more: the next one is looked for as soon as this one is read.
        self._listed_at = now if self._path is None else None
        self.offset = [self._packed, self._path, None]

    def _wait_for_the_folder(self, now: float) -> None:
        """A folder that is away, as a mount is for a moment, is no news of any file in it."""
        if not self._told_away:
            logger.warning("%s is not there; the source waits for it", self._files)
        self._told_away = True
        self._listed_at = now

    def _forget(self, there: Collection[bytes], now: float) -> None:
        """Forget files that have been gone for some time: a folder may come back in parts.

        What is remembered stays as small as the folder is.
        """
        self._told_away = False
        for digest in self._gone_since.keys() & there:
            del self._gone_since[digest]
        for digest in self._read.difference(there):
            since = self._gone_since.setdefault(digest, now)
            if now - since >= self._forget_after_s:
                self._read.discard(digest)
                del self._gone_since[digest]
        self._packed = b"".join(sorted(self._read))

    def _tell_of_changes(self, listed: Iterable[InputFile]) -> None:
        """Warn once of each file that was read and has another size now: its new content is not read."""
        for file in listed:
            digest = self._digest(file.path)
            if digest not in self._read:
                continue
            size = self._sizes.setdefault(digest, file.size)
            if file.size != size and digest not in self._told_changed:
                self._told_changed.add(digest)
                logger.warning(
                    "%s has %d bytes now and had %d when it was read: a watched file is read once, "
                    "as a whole. Its new content is not read; write new records to a new file, and "
                    "rename it into the folder when it is complete",
                    *(file.path, file.size, size),
                )

    def _digest(self, path: str) -> bytes:
        return _digest(self._was + path[len(self._here) :])


def _digest(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=_DIGEST_BYTES).digest()


def _cut(packed: bytes) -> set[bytes]:
    return {packed[start : start + _DIGEST_BYTES] for start in range(0, len(packed), _DIGEST_BYTES)}
