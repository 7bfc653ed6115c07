"""Files that become visible exactly once: what all sinks that write files share.

A writer puts its output into *pending* files below `<path>/_minirt`, which Spark and Hive pass over, in a
folder of its `SinkIdentity`. The snapshot holds their names; once its checkpoint is complete, `commit`
moves each to its final name. Both names are unique to a writer and a file, so nothing is ever written twice
or overwritten, and a commit that finds the final name taken knows that the move has happened.

With a roll interval, files are *held back* over several checkpoints: each checkpoint has their names, and
none of them commits. At the end of the interval the writer joins them, as part of a snapshot, into one
pending file, whose commit shows all their records in one step. If the job comes back from a checkpoint
in between, what it had held back is shown file by file, since its writers are gone. A file that was
held back knows the name of the one that it becomes part of: where that one is, its records are shown.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, BinaryIO, Literal, TypedDict, get_args

from minirt.errors import ConfigurationError
from minirt.filesystems import is_of_one_process
from minirt.io.base import (
    Committable,
    CommitterContext,
    Handle,
    OwnCommitter,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkIdentity,
    SinkWriter,
)
from minirt.io.encoder import Encoder
from minirt.io.file_names import (
    PENDING_FOLDER,
    FileHandle,
    FileNames,
    is_written_before,
    pending_folder,
)
from minirt.io.file_writer import FileWriter, Rolling
from minirt.io.files import FilePath, is_hidden, is_local, resolve
from minirt.io.partitions import Partitioner, checked_columns
from minirt.io.target_folder import (
    LocalFolder,
    RemoteFolder,
    TargetFolder,
    storage_errors,
)
from minirt.units import Duration, Size, seconds, size_bytes
from minirt.wording import given

logger = logging.getLogger("minirt.sinks")

OnExisting = Literal["warn", "append", "refuse"]


class FileOptions(TypedDict, total=False):
    """What every sink that writes files takes, by name; `FileSink` says what each does."""

    roll_bytes: Size
    roll_interval: Duration | None
    partition_by: str | Sequence[str] | None
    existing: OnExisting
    storage_options: Mapping[str, Any] | None


class FileSink(Sink, ABC):
    """Two-phase commit of files below the folder `path`, local or anywhere fsspec reaches.

    Several sinks and jobs may write into one folder. Files committed earlier are never touched. A job
    that goes on from no checkpoint adds to those that are there: `existing` says whether it warns of that
    ("warn"), does it without a word ("append"), or refuses to start ("refuse").

    A file is ended at a checkpoint and beyond `roll_bytes`. With `roll_interval`, what checkpoints ended is
    held back and joined, so that each subtask shows one file in this time, and its records that much later.
    `partition_by` names columns whose values are folders, `day=2024-05-06`, instead of being in the files.
    fsspec gets the `storage_options`.
    """

    suffix: str
    """How the names of its files end."""

    def __init__(
        self,
        path: FilePath,
        *,
        roll_bytes: Size = "128MiB",
        roll_interval: Duration | None = None,
        partition_by: str | Sequence[str] | None = None,
        existing: OnExisting = "warn",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        fs, folder = resolve(path, self._options)
        self._folder = folder.rstrip("/") or "/"
        self._url = self._folder if is_local(fs) else os.fspath(path)
        self.in_one_process = is_of_one_process(self._url)
        self._roll_bytes = size_bytes(roll_bytes, "roll_bytes")
        if self._roll_bytes == 0:
            raise ConfigurationError("roll_bytes must be above 0")
        self._roll_interval_s = _checked_interval(self, roll_interval)
        self._partition_by = checked_columns(partition_by)
        if existing not in get_args(OnExisting):
            allowed = ", ".join(get_args(OnExisting))
            raise ConfigurationError(f"existing must be one of {allowed}, got {existing!r}")
        self._existing = existing

    @property
    def opens_again(self) -> bool:  # type: ignore[override]
        """Names of files are unique to a writer; but only the one that has held files back joins them."""
        return self._roll_interval_s is None

    @abstractmethod
    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        """How one writer turns records into files: a function that gives the encoder of a stream."""

    def join(self, parts: Iterable[BinaryIO], stream: BinaryIO) -> None:
        """Write all records of several files of one writer into one. Only asked with `roll_interval`."""
        raise NotImplementedError

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return FileWriter(
            self._target(),
            FileNames(self._folder, self.suffix, context),
            self.encoding(context.operator),
            Rolling(self._roll_bytes, self._roll_interval_s, self.join),
            Partitioner(context.operator, self._partition_by) if self._partition_by else None,
        )

    def redirected(self, folder: str) -> Sink:
        """A copy with all its settings, but for the place."""
        other = copy(self)
        other._folder, other._url = folder, folder
        other._options, other._existing, other.in_one_process = {}, "append", False
        return other

    def has_output(self) -> bool:
        """Whether the folder already holds committed files, of whichever job."""
        fs, _ = resolve(self._url, self._options)
        with storage_errors("cannot list the files", self._folder):
            files = fs.find(self._folder) if fs.exists(self._folder) else []
        return any(not is_hidden(file[len(self._folder) :]) for file in files)

    def on_fresh_start(self) -> None:
        if self._existing == "append" or not self.has_output():
            return
        if self._existing == "refuse":
            raise ConfigurationError(
                f'{self._folder} holds output already, and existing is "refuse"; delete it, name another '
                "folder, or go on from a checkpoint"
            )
        logger.warning(
            "%s holds output already, and the job starts from the beginning: if this is the output of an "
            'earlier run, its records will show twice. Sinks with existing="refuse" do not start then, '
            'those with existing="append" do not warn',
            self._folder,
        )

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _FileCommitter(self, context)

    open_committer.passes_on = True  # type: ignore[attr-defined]  # See `commits_by_itself`.

    def commit(self, handles: Sequence[Handle]) -> None:
        """Publish; what is held back stays, until the file that it becomes part of is committed."""
        own = self._own(handles)
        target = self._target()
        target.publish([(handle.pending, handle.final) for handle in own if handle.joined is None])
        target.remove([part for handle in own for part in handle.parts])

    def commit_restored(self, handles: Sequence[Handle]) -> None:
        self.commit(handles)
        target = self._target()
        held = [handle for handle in self._own(handles) if handle.joined is not None]
        shown = [handle for handle in held if target.exists(handle.joined or "")]
        target.remove([handle.pending for handle in shown])
        target.publish([(handle.pending, handle.final) for handle in held if handle not in shown])

    def without_taken(self, handles: Sequence[Handle]) -> list[Handle]:
        """Return the handles without those whose files are neither pending nor published any more.

        Of output that is known to be committed, a reader has taken these away.
        """
        target = self._target()
        taken = {
            handle.pending
            for handle in self._own(handles)
            if not (target.exists(handle.pending) or target.exists(handle.final))
        }
        return [handle for handle in handles if handle["pending"] not in taken]

    def discard_uncommitted(
        self, committed: Sequence[Handle], identity: SinkIdentity, before_generation: int
    ) -> None:
        keep = {handle.pending for handle in self._own(committed)}
        self._target().remove_pending(
            pending_folder(self._folder, identity.name),
            lambda path: path not in keep and is_written_before(path, before_generation),
        )

    def validate(self) -> None:
        self._target().check_writable(f"{self._folder}/{PENDING_FOLDER}")

    def _own(self, handles: Sequence[Handle]) -> list[FileHandle]:
        """The handles, all checked. What was committed to another folder is left out.

        After a restore a job may write to another folder. It cannot commit what waits in the old one:
        whatever a handle says, the sink touches nothing outside of its own folder.
        """
        parsed = [FileHandle.parse(handle) for handle in handles]
        target = self._target()
        for handle in parsed:
            if handle.folder == self._folder:
                continue
            if target.exists(handle.pending) or not target.exists(handle.final):
                raise ConfigurationError(
                    f"the checkpoint holds output that waits in {handle.folder}, but the sink "
                    f"writes into {self._folder}; restore it once with the old folder and wait for "
                    "a checkpoint, or give that output up: a new uid for the sink, and "
                    f"{given('allow_non_restored_state', True)}"
                )
        return [handle for handle in parsed if handle.folder == self._folder]

    def _target(self) -> TargetFolder:
        fs, _ = resolve(self._url, self._options)
        return LocalFolder() if is_local(fs) else RemoteFolder(fs)


class _FileCommitter(OwnCommitter):
    """Commits what a restored checkpoint holds, and leaves alone what readers have taken away since.

    A landing folder is there to be emptied. Files of output that is known to be committed may be gone; of
    any other output a missing file is a loss.
    """

    def __init__(self, sink: FileSink, context: CommitterContext) -> None:
        super().__init__(sink, context)
        self._files = sink
        self._known = context.committed

    def commit_restored(self, committables: Sequence[Committable]) -> None:
        known = [one.handle for one in committables if one.checkpoint_id <= self._known]
        waiting = [one.handle for one in committables if one.checkpoint_id > self._known]
        self._files.commit_restored([*self._files.without_taken(known), *waiting])


def _checked_interval(sink: FileSink, roll_interval: Duration | None) -> float | None:
    if roll_interval is None:
        return None
    if type(sink).join is FileSink.join:
        raise ConfigurationError(
            f"roll_interval has no effect: {type(sink).__name__} does not say how to join its files"
        )
    return seconds(roll_interval, "roll_interval")
