"""A folder that Spark writes to and that minirt reads: on disks, or in an object store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from minirt.errors import ConfigurationError, StorageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_SPARKS = {
    "s3": "s3a",
    "s3a": "s3a",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""Of object stores, what Hadoop calls them."""


def hadoop_path(folder: PurePath) -> str:
    """The folder as Hadoop reads paths: with its scheme, and without escapes, which it would not undo."""
    return f"file://{folder}"


def local_path(given: str | Path) -> Path | None:
    """The folder of a path or a `file:` URL; None for the URL of an object store.

    Raises ConfigurationError for other URLs.
    """
    text = str(given)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text).expanduser().absolute()
    if scheme[1].lower() in _SPARKS and text[scheme.end() :].startswith("/"):
        return None
    _, _, text = text.partition(":")
    text = text.removeprefix("//") if text.startswith("///") else text
    if scheme[1].lower() != "file" or text.startswith("//"):
        raise ConfigurationError(
            f"cache_dir must be a folder, or a URL of s3://, gs:// or abfss://, not {given}; what all "
            "hosts share can be mounted as a folder, such as /dbfs/... or /Volumes/... on Databricks"
        )
    return Path(text).absolute()


@dataclass(frozen=True, slots=True)
class Place:
    """The folder as Spark calls it, and as this process does by fsspec."""

    spark_url: str
    files: Any
    root: str

    @classmethod
    def at(cls, folder: Path) -> Place:
        return cls(hadoop_path(folder), LocalFileSystem(), str(folder))

    @classmethod
    def of_url(cls, url: str, storage_options: Mapping[str, Any] | None) -> Place:
        """Spark reaches it by its own configuration, this process by `storage_options`.

        Raises StorageError where fsspec does not know how.
        """
        scheme, _, rest = url.rstrip("/").partition("://")
        options = {**(storage_options or {}), "use_listings_cache": False}
        try:
            files, root = fsspec.url_to_fs(f"{scheme}://{rest}", **options)
        except (ImportError, ValueError, TypeError) as error:
            raise StorageError(f"cannot use cache_dir ({error})", url) from error
        return cls(f"{_SPARKS[scheme.lower()]}://{rest}", files, root)

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, LocalFileSystem)

    def below(self, name: str) -> Place:
        return Place(f"{self.spark_url}/{name}", self.files, f"{self.root}/{name}")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def has(self, name: str) -> bool:
        return bool(self.files.exists(self.path(name)))

    def read(self, name: str) -> bytes:
        return bytes(self.files.cat_file(self.path(name)))

    def write(self, name: str, data: bytes) -> None:
        """An object appears whole."""
        self.files.pipe_file(self.path(name), data)

    def open(self, path: str) -> Any:
        """A path, or what reads it: pyarrow opens files of this machine itself."""
        return path if self.is_local else self.files.open(path, "rb")

    def parts(self) -> list[str]:
        """The names of the files that Spark's tasks have written."""
        try:
            found = self.files.ls(self.root, detail=False)
        except FileNotFoundError:
            return []
        names = [str(one).rstrip("/").rpartition("/")[2] for one in found]
        return sorted(name for name in names if re.fullmatch(r"part-.*\.parquet", name))

    def rows_of(self, names: Iterable[str]) -> int:
        """How many rows the files have by their footers.

        Raises StorageError for one that cannot be read.
        """
        rows = 0
        for name in names:
            try:
                rows += pq.read_metadata(self.open(self.path(name))).num_rows
            except (OSError, pa.ArrowException) as error:
                raise StorageError(
                    f"cannot read what Spark wrote ({error})", self.path(name)
                ) from error
        return rows

    def schema_of(self, name: str) -> pa.Schema:
        """The columns of a file, without what Spark notes beside them."""
        return pq.read_schema(self.open(self.path(name))).remove_metadata()

    def delete(self) -> None:
        """Delete the folder as far as that is possible."""
        with suppress(Exception):
            self.files.rm(self.root, recursive=True)
