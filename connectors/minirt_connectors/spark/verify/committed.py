"""The committed output of a job as a DataFrame: what any reader of the folder would see."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from minirt.errors import ConfigurationError, MinirtError, StorageError
from minirt_connectors.spark.verify.systems import Copy, copy_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FORMATS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
_COMPRESSIONS = {".gz", ".zst", ".bz2", ".lz4", ".snappy"}


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


def read_committed(spark: SparkSession, path: str, like: StructType | None = None) -> DataFrame:
    """The rows of the Parquet or JSONL files in the local `path`, without hidden ones (`_x`, `.x`).

    JSONL takes its types from the columns of `like` that it has; text that does not fit its type
    fails the query. A folder without files has no rows and the columns of `like`.
    Raises StorageError if there is nothing at `path`, ConfigurationError if it is something else.
    """
    kind = _format(path)
    if kind is None:
        if like is None:
            raise ConfigurationError(f"{path} holds no Parquet or JSONL file")
        return spark.createDataFrame([], like)
    if kind == "parquet":
        return spark.read.option("mergeSchema", True).parquet(path)
    found = spark.read.json(path)
    if like is None:
        return found
    known = {field.name: field for field in like.fields}
    typed = type(like)([known.get(field.name, field) for field in found.schema.fields])
    return spark.read.schema(typed).option("mode", "FAILFAST").json(path)


def _format(path: str) -> str | None:
    """The format that the visible files have in common, None if there are none."""
    try:
        files, root = _list(*fsspec.url_to_fs(path))
    except (OSError, ValueError, ImportError) as error:
        raise StorageError(f"cannot list the output ({error})", path) from error
    kinds = {name: _kind(name) for name in files if not _is_hidden(name, root)}
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
