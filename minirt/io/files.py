"""Which files a source reads: paths, folders and globs on any file system that fsspec knows."""

from __future__ import annotations

import difflib
import glob
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import infer_compression

from minirt.errors import (
    ConfigurationError,
    SourceChangedError,
    SourceDataError,
    StorageError,
)
from minirt.filesystems import explain, failures, has_folders, is_of_one_process, open_filesystem
from minirt.io.compressed import DAMAGED, decompressed
from minirt.io.remembered import Identity

FilePath = str | os.PathLike[str]
FilePaths = FilePath | Sequence[FilePath]

MIN_SPLIT_BYTES = 1 << 20
"""Below this size in bytes, another split costs more than it gains, unless a subtask is idle.
"""

_IDLE_PARTS = 16
"""How many times smaller splits may be, if a subtask would otherwise have nothing to read."""

_SPLITS_PER_SUBTASK = 4
"""Small inputs are cut so that every subtask gets about this many splits, and all end together."""

_CODEC_PACKAGES = {"zst": "zstandard", "lz4": "lz4", "snappy": "python-snappy"}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as its file system names it, with its size in bytes as stored."""

    path: str
    size: int


class InputFiles:
    """The files behind what a user gave as `path`; holds names only, so it pickles.

    In folders, only files with one of `suffixes` count (compressed ones too where `compressed`),
    and names that begin with `_` or `.` are passed over, as Spark does.
    """

    def __init__(
        self,
        path: FilePaths,
        suffixes: Sequence[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        compressed: bool = False,
    ) -> None:
        given = [path] if isinstance(path, str | os.PathLike) else list(path)
        if not given:
            raise ConfigurationError("path is an empty list; name at least one file or folder")
        self._options = dict(storage_options or {})
        self._suffixes = tuple(suffixes)
        self._compressed = compressed
        resolved = [resolve(one, self._options) for one in given]
        if len({type(fs) for fs, _ in resolved}) > 1:
            raise ConfigurationError(f"all paths of one source must share a file system: {given}")
        self._given = [os.fspath(one) for one in given]
        self._paths = [inner for _, inner in resolved]
        self._url = self._given[0]
        self.in_one_process = is_of_one_process(self._url)

    def __str__(self) -> str:
        return ", ".join(self._given)

    @property
    def filesystem(self) -> Any:
        """The fsspec file system of all the files."""
        return resolve(self._url, self._options)[0]

    def identity(self) -> Identity:
        """Tell the path from all others; relative ones are made absolute."""
        fs = self.filesystem
        start = "" if is_local(fs) else f"{_protocol(fs)}://"
        return Identity("path", ", ".join(f"{start}{path}" for path in self._paths))

    def rebased(self, path: str, kept: Identity) -> str:
        """Give the file here that lies where `path` lay below the path that `kept` names.

        Raises SourceChangedError for a file that has no such place.
        """
        old = kept.name.rpartition("://")[2]
        if len(self._paths) == 1:
            [new] = self._paths
            if path == old:
                return new
            old, new = _literal_folder(old), _literal_folder(new)
            if path.startswith(f"{old}/"):
                return new + path[len(old) :]
        raise SourceChangedError(f"nobody can tell which file of {self} was {path} in {kept}")

    def folder_is_there(self) -> bool:
        """Return True if the only path given is a folder that exists now. Raises StorageError."""
        fs = self.filesystem
        try:
            # In a bucket there are no folders: without objects, nothing tells whether it is there.
            return not has_folders(fs) or bool(fs.isdir(self._paths[0]))
        except failures(TypeError, ValueError) as error:
            raise StorageError(f"cannot look at {self} ({explain(error)})") from error

    def folder(self) -> str:
        """Give the path within the file system of the folder that is read, or of that of a glob."""
        return _literal_folder(self._paths[0])

    def list(self, *, may_be_empty: bool = False) -> list[InputFile]:
        """All files, each once, in the order of the paths given and by name within each.

        Raises ConfigurationError naming the path that matches nothing, unless it `may_be_empty`;
        StorageError where storage fails.
        """
        fs = self.filesystem
        found: dict[str, InputFile] = {}
        for given, path in zip(self._given, self._paths, strict=True):
            try:
                matched = sorted(self._match(fs, path), key=lambda file: file.path)
            except failures(
                TypeError, ValueError
            ) as error:  # Unsuitable options show only at this point.
                if is_local(fs):
                    raise ConfigurationError(f"cannot list {given}: {error}") from error
                raise StorageError(f"cannot list ({explain(error)})", given) from error
            if not matched and not may_be_empty:
                raise ConfigurationError(
                    f"no input at {given}: it does not exist or holds no file that ends in "
                    f"{' or '.join(self._suffixes)} (names that begin with _ or . are ignored)"
                )
            for file in matched:
                _check_storable(file.path)
            found.update((file.path, file) for file in matched if file.path not in found)
        return list(found.values())

    def check_folder(self) -> None:
        """Raises ConfigurationError unless what is given is one folder that is there."""
        fs = self.filesystem
        try:
            if len(self._paths) == 1 and fs.isdir(self._paths[0]):
                return
        except failures(TypeError, ValueError) as error:
            raise ConfigurationError(f"cannot look at {self} ({explain(error)})") from error
        raise ConfigurationError(f"only a folder that is there can be watched, and {self} is none")

    def open(self, path: str) -> tuple[BinaryIO, ExitStack]:
        """The bytes of a file, decompressed by its suffix, and what closes everything behind them.

        Raises SourceDataError if it cannot be opened.
        """
        fs = self.filesystem
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(_open_stored(fs, path))
                if (codec := compression_of(path)) and self._compressed:
                    stream = stack.enter_context(decompressed(stream, codec, path))
            except failures(ValueError, *DAMAGED) as error:
                raise SourceDataError(f"cannot open {path}: {explain(error)}") from error
            return cast(BinaryIO, stream), stack.pop_all()

    def _match(self, fs: Any, path: str) -> Iterator[InputFile]:
        try:
            info = fs.info(path)
        except FileNotFoundError:
            if glob.has_magic(path):
                yield from self._match_glob(fs, path)
            return
        if info["type"] == "directory":
            yield from self._below(fs, path)
        else:
            yield InputFile(path, info["size"] or 0)

    def _match_glob(self, fs: Any, pattern: str) -> Iterator[InputFile]:
        literal = len(pattern[: _first_magic(pattern)].rpartition("/")[0])
        for path, info in fs.glob(pattern, detail=True).items():
            if is_hidden(path[literal:]):
                continue
            if info["type"] == "directory":
                yield from self._below(fs, path)
            else:
                yield InputFile(path, info["size"] or 0)

    def _below(self, fs: Any, folder: str) -> Iterator[InputFile]:
        for path, info in fs.find(folder, detail=True).items():
            if not is_hidden(path[len(folder) :]) and self._has_suffix(path):
                yield InputFile(path, info["size"] or 0)

    def _has_suffix(self, path: str) -> bool:
        if self._compressed and compression_of(path):
            path = path.rpartition(".")[0]
        return path.lower().endswith(self._suffixes)


def resolve(path: FilePath, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path within it; local ones made absolute.

    Raises ConfigurationError for what is no path and for protocols that cannot be used.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not text:
        raise ConfigurationError(f"path must be a path or URL, got {path!r}")
    _check_storable(text)
    try:
        fs, inner = open_filesystem(text, options)
    except (ValueError, ImportError, TypeError) as error:
        raise ConfigurationError(f"cannot use the path {text}: {explain(error)}") from error
    return fs, inner


def is_local(fs: Any) -> bool:
    """Whether the files are this machine's own, reachable without fsspec."""
    return isinstance(fs, LocalFileSystem)


def is_hidden(relative: str) -> bool:
    """Whether Spark would pass over a file, judging by its path below the source's folder."""
    return any(
        name.startswith(".") or (name.startswith("_") and "=" not in name)
        for name in relative.split("/")
    )


def compression_of(path: str) -> str | None:
    """fsspec's name for the compression that the suffix stands for; None if there is none.

    Raises ConfigurationError if the package for it is not installed.
    """
    codec = infer_compression(path)
    package = _CODEC_PACKAGES.get(path.rpartition(".")[2])
    if codec is None and package is not None:
        raise ConfigurationError(f"reading {path} needs the package {package}; install it")
    return cast("str | None", codec)


def split_target(total_bytes: int, parallelism: int, most: int) -> int:
    """How large splits should be, in bytes: at most `most`, smaller where subtasks would be idle."""
    share = math.ceil(total_bytes / (parallelism * _SPLITS_PER_SUBTASK))
    one_each = max(MIN_SPLIT_BYTES // _IDLE_PARTS, math.ceil(total_bytes / parallelism))
    return max(1, min(most, max(share, min(MIN_SPLIT_BYTES, one_each))))


def checked_columns(columns: Sequence[str] | None) -> list[str] | None:
    """The names that a source is to read; None for all. Raises ConfigurationError for no list of names."""
    if isinstance(columns, str) or (columns is not None and not columns):
        raise ConfigurationError(f"columns must be a list of names, got {columns!r}")
    return None if columns is None else list(columns)


def refuse_unknown(option: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise ConfigurationError for a name that is not in `known`, proposing the nearest one."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ConfigurationError(f"{option}: there is no column {name!r}; {hint}")


def _check_storable(path: str) -> None:
    """Refuse what no checkpoint can hold, where positions and pending files are stored with their path."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"the name of a file is not UTF-8: {os.fsencode(path)!r}; rename it"
        ) from None


def _open_stored(fs: Any, path: str) -> Any:
    return open(path, "rb") if is_local(fs) else fs.open(path, "rb")


def _protocol(fs: Any) -> str:
    protocol = fs.protocol
    return str(protocol if isinstance(protocol, str) else protocol[0])


def _literal_folder(path: str) -> str:
    """The path, or the folder that a glob begins in."""
    if not glob.has_magic(path):
        return path
    return path[: _first_magic(path)].rpartition("/")[0]


def _first_magic(pattern: str) -> int:
    return next(at for at, char in enumerate(pattern) if char in "*?[")
