"""A Spark DataFrame as a source: Spark writes it once, minirt replays the files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.units import Duration, Size, seconds, size_bytes
from minirt_connectors.cache import cache_folder
from minirt_connectors.spark.columns import refuse_unreadable
from minirt_connectors.spark.landing import LandedReader, Landing, Passing
from minirt_connectors.spark.layout import Layout
from minirt_connectors.spark.parquet_reader import ParquetFileReader, ParquetFilesReader
from minirt_connectors.spark.place import Place, local_path
from minirt_connectors.spark.query import LandingQuery, Landings
from minirt_connectors.spark.snapshot import Snapshot, checked_name, take_snapshot
from minirt_connectors.spark.writing import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

DEFAULT_TRIGGER = "1s"
DEFAULT_BACKLOG = "1GiB"

logger = logging.getLogger("minirt.spark")


class SparkSource(Source):
    """Replays a DataFrame: exactly its rows, in the order of `order_by`.

    Constructing it has Spark write the DataFrame, once, as `splits` Parquet files (8 by default) into a
    folder of `cache_dir`. From then on only these files are read: neither Spark nor pyspark is needed in
    workers.

    Without `order_by` rows come in any order, and each file is a split: a job reads with at most that many
    subtasks. With `order_by` all rows come in that order, which takes one subtask: files are ranges of it,
    and one split reads them in turn. With `partition_by` as well, the columns of the job's keys, the order
    holds within each key, and each file is a split again: it has all rows of its keys, and runs through the
    whole range of `order_by`, so that event time advances evenly.

    The folder is named after the content of the DataFrame, which takes Spark one pass over it, and
    is found again by a later start of the same program: nothing is written a second time. `name`
    replaces the content: data once written under a name is replayed without looking at the
    DataFrame again, until the folder is deleted. Nothing is deleted by itself, since a stored
    checkpoint may refer to it. `cache_dir` (`~/.cache/minirt/spark` by default) must be one folder
    for Spark's driver, its executors and all workers: if rows are missing there that an executor has
    written, the source is refused. It may be a URL of `s3://`, `gs://` or `abfss://`: Spark reaches it by
    its own configuration (`s3://` as `s3a://`), and the program and workers by `storage_options` of fsspec.

    Records carry the DataFrame's columns; a `timestamp` becomes an instant in UTC, whatever the
    session's time zone, and a `timestamp_ntz` a datetime without zone.

    Of a streaming DataFrame, constructing it starts the query, which lands each micro-batch in the
    folder of `name`; the source never ends, and its splits read the batches in their order. Every
    `trigger` a batch may land. Spark's own checkpoint is there as well, so a program that is started
    again under the same name goes on with the batch that is next; one that is run again does not land
    twice. With `clean`, batches are deleted once a checkpoint of the job has passed them, and the query
    waits while more than `backlog` bytes lie there; otherwise all stay. `query` is Spark's handle of
    the query, `stop()` ends it. If the query fails, the job fails with its message. A job that is restored
    with another query, as of another `name` or a folder that was deleted and begun anew, is refused with a
    SourceChangedError, unless `accept` has "other".

    Raises ConfigurationError for columns that are unknown or that records cannot carry, for options
    without effect, for a name whose data has other columns, order or number of splits, for a `cache_dir`
    that executors do not share, and for a streaming DataFrame of Spark Connect; SourceDataError if Spark
    cannot write the DataFrame.
    """

    def __init__(
        self,
        df: DataFrame,
        *,
        order_by: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        splits: int | None = None,
        cache_dir: str | None = None,
        name: str | None = None,
        trigger: Duration | None = None,
        clean: bool = False,
        backlog: Size | None = None,
        storage_options: Mapping[str, Any] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        layout = Layout.of(order_by, partition_by, splits)
        where = str(cache_dir or cache_folder("spark"))
        cache = local_path(where)
        if storage_options is not None and cache is not None:
            raise ConfigurationError("storage_options has no effect: cache_dir is a folder")
        self._read: _Replay | _Following
        if df.isStreaming:
            limit = _backlog_bytes(clean, backlog)
            if cache is None:
                raise ConfigurationError(
                    f"the cache_dir of a streaming DataFrame must be a folder, not {where}: batches appear "
                    "by a rename, which object stores do not have"
                )
            self._read = _Following(df, layout, cache, name, trigger, clean, limit)
            self.bounded, self.interleave = False, True
            return
        for option, given in (("trigger", trigger), ("clean", clean), ("backlog", backlog)):
            if given:
                raise ConfigurationError(f"{option} has no effect: the DataFrame is not streaming")
        place = Place.of_url(where, storage_options) if cache is None else Place.at(cache)
        self._read = _Replay(df, layout, place, name)
        if layout.order_by:
            self.interleave = True  # Else by event time, if the job has it: rows come in any order.

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        return self._read.plan_splits()

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        """Reads the file that the split was planned from, even if the DataFrame has changed since."""
        return self._read.open_split(split, offset)

    def schema(self) -> pa.Schema:
        return self._read.schema

    def identity(self) -> Identity | None:
        """Tell the query from others; what was written once of a DataFrame is named in its splits."""
        return self._read.identity if isinstance(self._read, _Following) else None

    def committed(self, offsets: Mapping[str, Offset]) -> None:
        if not isinstance(self._read, _Following):
            return
        if self._read.clean:
            self._read.passing.committed(offsets)
        if self._read.running is not None:
            self._read.running.tell_if_it_waits()

    @property
    def wants_committed(self) -> bool:
        return isinstance(self._read, _Following)

    @property
    def query(self) -> StreamingQuery:
        """The query that lands the batches; only in the program that has made the source."""
        return self._landing_query().query

    def stop(self) -> None:
        """End the query. The job reads what has landed, and waits for more."""
        self._landing_query().stop()

    def _landing_query(self) -> LandingQuery:
        running = self._read.running if isinstance(self._read, _Following) else None
        if running is None:
            raise ConfigurationError(
                "there is no query: the DataFrame is not streaming, or not here"
            )
        return running


class _Replay:
    """Reads what Spark has written once."""

    def __init__(self, df: DataFrame, layout: Layout, cache: Place, name: str | None) -> None:
        self._cache = cache
        self._told = False
        self._snapshot: Snapshot = take_snapshot(df, layout, cache, name)
        self.schema = self._snapshot.schema

    def plan_splits(self) -> Sequence[Split]:
        folder = self._snapshot.folder
        files = [f"{folder}/{file}" for file in self._snapshot.files]
        if self._snapshot.one_order:
            return [Split(f"{folder}/all", {"files": files})]
        return [Split(f"{folder}/{index:05d}", {"file": file}) for index, file in enumerate(files)]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        one_order = "files" in split.info
        files = split.info["files"] if one_order else [split.info["file"]]
        gone = [file for file in files if not self._cache.has(file)]
        if gone:
            raise SourceDataError(
                f"split {split.id}: {self._cache.path(gone[0])} is gone; a job can only "
                "be restored while the data that Spark wrote for it is still there"
            )
        self._tell_of_change(files[0].partition("/")[0])
        paths = [self._cache.path(file) for file in files]
        if one_order:
            return ParquetFilesReader(paths, offset, self._cache.open)
        return ParquetFileReader(paths[0], offset, self._cache.open)

    def _tell_of_change(self, folder: str) -> None:
        if folder == self._snapshot.folder or self._told:
            return
        self._told = True
        logger.warning(
            "the DataFrame is not the one that the checkpoint was taken of, or is laid out otherwise: the "
            "job goes on with the rows in %s to their end, and does not read those in %s; to read these, "
            "start it without restore, with other storage",
            folder,
            self._snapshot.folder,
        )


class _Following:
    """Reads what a query lands. In workers there is no query."""

    def __init__(
        self,
        df: DataFrame,
        layout: Layout,
        cache: Path,
        name: str | None,
        trigger: Duration | None,
        clean: bool,
        backlog_bytes: int | None,
    ) -> None:
        if name is None:
            raise ConfigurationError(
                "a streaming DataFrame needs a name=...: by it the source finds what has landed before"
            )
        if is_connect(df.sparkSession):
            raise ConfigurationError(
                "a streaming DataFrame needs a program that is Spark's driver, and a session of Spark "
                "Connect is not; a DataFrame that is not streaming can be a source there"
            )
        refuse_unreadable(df)
        layout.check(df)
        self._landing = Landing(cache / checked_name(name))
        self.clean = clean
        trigger_s = seconds(DEFAULT_TRIGGER if trigger is None else trigger, "trigger")
        how = Landings(layout, trigger_s, backlog_bytes)
        self.running: LandingQuery | None = LandingQuery(df, self._landing, how, name)
        self.schema = self.running.schema
        self.identity = Identity("Spark query", name, {"query id": str(self.running.query.id)})
        # The only split of one order reads all files of a batch.
        places = [None] if self.running.layout.one_order else range(layout.splits)
        self._places: Sequence[int | None] = list(places)
        self.passing = Passing(self._landing, len(self._places), {})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "running": None}

    def plan_splits(self) -> Sequence[Split]:
        return [
            Split("all" if place is None else f"{place:05d}", {"place": place})
            for place in self._places
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return LandedReader(self._landing, split.info["place"], self.schema, offset)


def _backlog_bytes(clean: bool, backlog: Size | None) -> int | None:
    if backlog is not None and not clean:
        raise ConfigurationError("backlog has no effect without clean=True: nothing is deleted")
    return size_bytes(DEFAULT_BACKLOG if backlog is None else backlog, "backlog") if clean else None
