"""The committed output of a job as a DataFrame: what any reader of the folder would see."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from minirt.errors import ConfigurationError, MinirtError, SourceDataError, StorageError
from minirt_connectors.spark.columns import column
from minirt_connectors.spark.place import hadoop_path
from minirt_connectors.spark.verify.json_frame import read_json
from minirt_connectors.spark.verify.partition_folders import Partition, partition_of, texts_of
from minirt_connectors.spark.verify.systems import Copy, copy_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FORMATS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
_COMPRESSIONS = {".gz", ".zst", ".bz2", ".lz4", ".xz"}
_AS_WRITTEN = {
    "mergeSchema": "true",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
}
"""Whatever the session says: no date is shifted, no file is passed over, no name is a pattern."""


@contextmanager
def within_reach(path: str, storage_options: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A path at which Spark finds the output at `path` as files: itself, or that of a copy.

    Spark may know nothing of s3:// and the like, fsspec does; nor of tables and topics, whose clients do.
    Raises StorageError, and ConfigurationError as `copy_of` does.
    """
    copy = _copy(path, storage_options or {})
    if copy is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="minirt-committed-") as folder:
        try:
            copy(Path(folder))
        except MinirtError:
            raise
        except Exception as error:  # Clients raise errors of their own.
            raise StorageError(f"cannot read the output ({error})", path) from error
        yield folder


def _copy(path: str, options: Mapping[str, Any]) -> Copy | None:
    """What copies the output at `path` into a folder; None if Spark finds its files there."""
    try:
        copy = copy_of(path, options)
        if copy is not None:
            return copy
        files, root = fsspec.url_to_fs(path, **{**options, "use_listings_cache": False})
    except MinirtError:
        raise
    except (ValueError, ImportError) as error:
        raise StorageError(f"cannot list the output ({error})", path) from error
    return None if isinstance(files, LocalFileSystem) else partial(_copy_visible, files, root)


def _copy_visible(files: Any, root: str, folder: Path) -> None:
    names, above = _list(files, root)
    for name in names:
        if not _is_hidden(name, above):
            target = folder / PurePosixPath(name).relative_to(above)
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))


@dataclass(frozen=True, slots=True)
class Found:
    """Rows, with the texts of the columns that folders name: what type these are, the other side says."""

    frame: DataFrame
    texts: Mapping[str, frozenset[str | None]] = field(default_factory=dict)


def read_committed(spark: SparkSession, path: str, like: StructType | None = None) -> Found:
    """The rows of the Parquet or JSONL files in the local `path`, without hidden ones (`_x`, `.x`).

    Values are those of the files: JSONL takes its types from the columns of `like` that it has, and columns
    of folders (`day=2024-05-06`) are text. A folder without files has no rows and the columns of `like`.
    Raises StorageError if there is nothing at `path`, ConfigurationError if it is something else,
    SourceDataError for a line that is no JSON or does not fit.
    """
    files, root, whole = _visible(path)
    kind = _format(path, files)
    if kind is None:
        if like is None:
            raise ConfigurationError(f"{path} holds no Parquet or JSONL file")
        return Found(spark.createDataFrame([], like))
    partitions = {name: partition_of(name, root) for name in files}
    texts = texts_of(partitions.values())
    if kind == "json":
        found = read_json(spark, partitions, like)
    else:
        _refuse_other_columns(partitions)
        with _untyped_folders(spark):
            found = spark.read.options(**_AS_WRITTEN).parquet(hadoop_path(PurePosixPath(whole)))
        if texts:  # Where all folders stand for null, Spark knows no type at all.
            found = found.withColumns({name: column(name).cast("string") for name in texts})
    if not found.columns:
        raise ConfigurationError(f"{path} has no rows, so nothing says which columns there are")
    return Found(found, texts)


@contextmanager
def _untyped_folders(spark: SparkSession) -> Iterator[None]:
    """Have Spark take what folders are called as text: it would make numbers of 007 and 1e3."""
    option = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(option)
    spark.conf.set(option, "false")
    try:
        yield
    finally:
        spark.conf.set(option, before)


def _refuse_other_columns(files: Mapping[str, Partition]) -> None:
    """Raise ConfigurationError for columns that Spark takes for one without a word.

    They differ in case only from file to file, or are in a file and in the names of its folders.
    """
    known: dict[str, str] = {}
    for name, partition in files.items():
        try:
            schema = pq.read_metadata(name).schema
        except (OSError, pa.ArrowException) as error:
            raise SourceDataError(f"cannot compare the output: {name}: {error}") from error
        for place in range(len(schema)):
            path = schema.column(place).path
            if path in partition:
                raise ConfigurationError(f"{name} has the column {path}, and so has its folder")
            if known.setdefault(path.lower(), path) != path:
                raise ConfigurationError(
                    f"some files have the column {path}, others {known[path.lower()]}: see {name}"
                )


def _visible(path: str) -> tuple[list[str], str, str]:
    """The visible files, the folder that they are in, and the path without its scheme."""
    try:
        system, whole = fsspec.url_to_fs(path)
        files, root = _list(system, whole)
    except (OSError, ValueError, ImportError) as error:
        raise StorageError(f"cannot list the output ({error})", path) from error
    return [name for name in files if not _is_hidden(name, root)], root, whole


def _format(path: str, files: Sequence[str]) -> str | None:
    """The format that the files have in common, None if there are none."""
    kinds = {name: _kind(name) for name in files}
    strange = [name for name, kind in kinds.items() if kind is None]
    if strange:
        raise ConfigurationError(f"{path} must hold Parquet or JSONL files only, not {strange[0]}")
    if len(set(kinds.values())) > 1:
        raise ConfigurationError(f"{path} holds both Parquet and JSONL files: verify one of them")
    return next(iter(kinds.values()), None)


def _list(files: Any, root: str) -> tuple[list[str], str]:
    """The files there, and the folder that their hidden parts are below."""
    if not files.exists(root):
        raise FileNotFoundError("there is nothing")
    if files.isfile(root):
        return [root], str(PurePosixPath(root).parent)
    return files.find(root), root


def _is_hidden(file: str, root: str) -> bool:
    """Whether Spark and Hive pass over the file, for its own name or that of a folder in `root`."""
    parts = PurePosixPath(file).relative_to(PurePosixPath(root)).parts
    return any(part[0] == "." or (part[0] == "_" and "=" not in part) for part in parts)


def _kind(file: str) -> str | None:
    suffixes = PurePosixPath(file).suffixes
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1]) if suffixes else None
