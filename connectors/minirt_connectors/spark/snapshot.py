"""A DataFrame written down once, so that it can be read again and again in the same order."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.spark.columns import (
    column,
    content_hash,
    refuse_unknown,
    refuse_unreadable,
    single_timestamp_format,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARKER = "_minirt.json"
_ROW_GROUP_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the records of a DataFrame are laid out: the order in each file, and how many files."""

    order_by: tuple[str, ...]
    splits: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Parquet files in `folder`, which is relative to the cache; all have the columns `schema`."""

    folder: str
    files: tuple[str, ...]
    schema: pa.Schema


def take_snapshot(df: DataFrame, layout: Layout, cache: Path, name: str | None) -> Snapshot:
    """The files of `df` in this layout: found in `cache`, or else written by Spark at this call."""
    refuse_unreadable(df)
    refuse_unknown(df, layout.order_by, "order_by")
    identity = _identity(df, layout, name)
    folder = name or hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    _make_folder(cache)
    with _only_writer(cache / f".{folder}.lock"):
        if not (cache / folder / _MARKER).is_file():
            _write(df, layout, identity, cache / folder)
    return _read_back(cache, folder, identity)


def _identity(df: DataFrame, layout: Layout, name: str | None) -> dict[str, Any]:
    """What must be equal for written data to be used again."""
    if name is not None:
        checked_name(name)
    return {
        "columns": [f"{field.name} {field.dataType.simpleString()}" for field in df.schema],
        "order_by": list(layout.order_by),
        "splits": layout.splits,
        "content": content_hash(df) if name is None else None,
    }


def checked_name(name: str) -> str:
    """The name, which is also that of a folder. Raises ConfigurationError for others."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"name {name!r} must be at most 100 letters, digits, dots, dashes and underscores"
        )
    return name


def _write(df: DataFrame, layout: Layout, identity: dict[str, Any], target: Path) -> None:
    """Write aside and rename: `target` appears whole or not at all, its marker is written last."""
    prefix = f".{target.name}.writing-"
    for abandoned in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        dealt = df.repartition(layout.splits)
        if layout.order_by:
            dealt = dealt.sortWithinPartitions(*[column(name) for name in layout.order_by])
        with single_timestamp_format(df.sparkSession):
            dealt.write.mode("overwrite").options(
                **{"parquet.block.size": _ROW_GROUP_BYTES, "maxRecordsPerFile": 0}
            ).parquet(aside.as_uri())
        files = sorted(path.name for path in aside.glob("part-*.parquet"))
        (aside / _MARKER).write_text(json.dumps({"identity": identity, "files": files}))
        shutil.rmtree(target, ignore_errors=True)
        os.rename(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _read_back(cache: Path, folder: str, identity: dict[str, Any]) -> Snapshot:
    marker = cache / folder / _MARKER
    try:
        written = json.loads(marker.read_text())
        found, files = written["identity"], tuple(written["files"])
        schema = pq.read_schema(marker.parent / files[0]).remove_metadata()
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise StorageError(
            f"what Spark wrote earlier is damaged ({error}); delete the folder", str(marker.parent)
        ) from error
    if found != identity:
        raise ConfigurationError(
            f"the data named {folder!r} was written with another layout: choose another name or "
            f"delete {marker.parent}; it has {found}, asked for is {identity}"
        )
    return Snapshot(folder, files, schema)


def _make_folder(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create cache_dir ({error.strerror})", str(cache)) from error


@contextmanager
def _only_writer(lock: Path) -> Iterator[None]:
    """Waits for another process that writes the same data; a killed one no longer holds the lock."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
