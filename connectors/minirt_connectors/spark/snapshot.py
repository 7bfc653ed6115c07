"""A DataFrame written down once, so that it can be read again and again in the same order."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.spark.columns import content_hash, is_deterministic, refuse_unreadable
from minirt_connectors.spark.layout import Layout
from minirt_connectors.spark.place import Place
from minirt_connectors.spark.writing import refuse_private_folder, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARKER = "_minirt.json"
_ROW_GROUP_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTENT_ROWS = re.compile(r"(\d+) rows,")

logger = logging.getLogger("minirt.spark")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Parquet files in `folder`, which is relative to the cache; all have the columns `schema`.

    With `one_order` their rows are in order from the first file to the last.
    """

    folder: str
    files: tuple[str, ...]
    schema: pa.Schema
    one_order: bool


def take_snapshot(df: DataFrame, layout: Layout, cache: Place, name: str | None) -> Snapshot:
    """The files of `df` in this layout: found in `cache`, or else written by Spark at this call."""
    refuse_unreadable(df)
    layout.check(df)
    identity = _identity(df, layout, name)
    folder = name or hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    if cache.is_local:
        here = Path(cache.root)
        _make_folder(here)
        with _only_writer(here / f".{folder}.lock"):
            if not (here / folder / _MARKER).is_file():
                _write(df, layout, identity, here / folder)
    elif not cache.has(f"{folder}/{_MARKER}"):
        _write_objects(df, layout, identity, cache.below(folder))
    return _read_back(cache, folder, layout, identity)


def _identity(df: DataFrame, layout: Layout, name: str | None) -> dict[str, Any]:
    """What must be equal for written data to be used again."""
    if name is not None:
        checked_name(name)
    return {
        "columns": [f"{field.name} {field.dataType.simpleString()}" for field in df.schema],
        **layout.plain(),
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
    refuse_private_folder(df.sparkSession, target.parent)
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        marker = _written(df, layout, identity, Place.at(aside), "")
        (aside / _MARKER).write_bytes(marker)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_objects(df: DataFrame, layout: Layout, identity: dict[str, Any], target: Place) -> None:
    """Write where nobody else writes: an object store renames nothing. The marker says which files count.

    Of two programs that write the same at once, the later marker counts, and what the other one has planned
    stays readable.
    """
    attempt = uuid.uuid4().hex
    aside = target.below(attempt)
    try:
        marker = _written(df, layout, identity, aside, f"{attempt}/")
    except BaseException:
        aside.delete()
        raise
    target.write(_MARKER, marker)


def _written(
    df: DataFrame, layout: Layout, identity: dict[str, Any], place: Place, prefix: str
) -> bytes:
    """Have Spark write the files. Returns the marker, which names them with this prefix."""
    names, rows = write_files(df, layout, place, **{"parquet.block.size": _ROW_GROUP_BYTES})
    _check_repeats(df, identity, rows)
    files = [f"{prefix}{name}" for name in names]
    return json.dumps({"identity": identity, "files": files, "rows": rows}).encode()


def _check_repeats(df: DataFrame, identity: Mapping[str, Any], rows: int) -> None:
    """Say that another start of the program will write other rows, unless a name pins these."""
    counted = _content_rows(identity)
    if counted is None:
        return
    if counted != rows:
        raise ConfigurationError(
            f"the DataFrame had {counted:,} rows at first, and {rows:,} when Spark read it again: give the "
            "source a name=..., under which what is written first is replayed"
        )
    if not is_deterministic(df):
        logger.warning(
            "the DataFrame has other rows each time that Spark reads it (rand(), uuid(), ...), so each "
            "start of the program writes them anew; a name=... of the source pins those written first"
        )


def _content_rows(identity: Mapping[str, Any]) -> int | None:
    """How many rows were hashed; None for data with a name, whose content is not looked at."""
    match = _CONTENT_ROWS.match(identity["content"] or "")
    return int(match[1]) if match else None


def _read_back(cache: Place, folder: str, layout: Layout, identity: Mapping[str, Any]) -> Snapshot:
    place = cache.below(folder)
    try:
        written = json.loads(place.read(_MARKER))
        found, files = written["identity"], tuple(written["files"])
        # Earlier versions did not write down how many rows there are.
        rows = written.get("rows", _content_rows(found))
        schema = place.schema_of(files[0])
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise StorageError(
            f"what Spark wrote earlier is damaged ({error}); delete the folder", place.root
        ) from error
    as_written = layout.as_written(found, identity)
    if as_written is None:
        raise ConfigurationError(
            f"the data named {folder!r} was written with another layout: choose another name or "
            f"delete {place.root}; it has {found}, asked for is {dict(identity)}"
        )
    present = place.rows_of(files)
    if rows is not None and present != rows:
        raise StorageError(
            f"what Spark wrote earlier is damaged: {rows:,} rows were written, {present:,} are there, "
            "maybe because executors did not share the folder; delete it",
            place.root,
        )
    if as_written.in_turns:
        logger.warning(
            "%s was written by an earlier version, which kept the order of %s within each file only; "
            "delete the folder to have it written anew",
            place.root,
            ", ".join(layout.order_by),
        )
    return Snapshot(folder, files, schema, as_written.one_order)


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
