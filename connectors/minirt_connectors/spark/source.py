"""A Spark DataFrame as a source: Spark writes it once, minirt replays the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.units import Duration, Size, positive, seconds, size_bytes
from minirt_connectors.cache import cache_folder
from minirt_connectors.spark.columns import refuse_unknown, refuse_unreadable
from minirt_connectors.spark.landing import LandedReader, Landing, Passing
from minirt_connectors.spark.parquet_reader import ParquetFileReader
from minirt_connectors.spark.query import LandingQuery, Landings
from minirt_connectors.spark.snapshot import Layout, Snapshot, checked_name, take_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

DEFAULT_SPLITS = 8
DEFAULT_TRIGGER = "1s"
DEFAULT_BACKLOG = "1GiB"


class SparkSource(Source):
    """Replays a DataFrame: ordered by `order_by` within each split, splits side by side.

    Constructing it has Spark write the DataFrame, once, as `splits` Parquet files (8 by default; a
    job reads with at most that many subtasks) into a folder of `cache_dir`. Every split runs through
    the whole range of `order_by`, so that event time advances evenly. From then on only these files
    are read: neither Spark nor pyspark is needed in workers.

    The folder is named after the content of the DataFrame, which takes Spark one pass over it, and
    is found again by a later start of the same program: nothing is written a second time. `name`
    replaces the content: data once written under a name is replayed without looking at the
    DataFrame again, until the folder is deleted. Nothing is deleted by itself, since a stored
    checkpoint may refer to it. `cache_dir` (`~/.cache/minirt/spark` by default) must be one folder
    for Spark and all workers.

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
    without effect, and for a name whose data has other columns, order or number of splits.
    """

    def __init__(
        self,
        df: DataFrame,
        *,
        order_by: str | Sequence[str] | None = None,
        splits: int | None = None,
        cache_dir: str | None = None,
        name: str | None = None,
        trigger: Duration | None = None,
        clean: bool = False,
        backlog: Size | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        if cache_dir is not None and "://" in cache_dir:
            raise ConfigurationError(f"cache_dir must be a folder, not a URL: {cache_dir}")
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by or ())
        layout = Layout(columns, positive("splits", DEFAULT_SPLITS if splits is None else splits))
        cache = Path(cache_dir or cache_folder("spark")).expanduser().absolute()
        self._read: _Replay | _Following
        if df.isStreaming:
            limit = _backlog_bytes(clean, backlog)
            self._read = _Following(df, layout, cache, name, trigger, clean, limit)
            self.bounded, self.interleave = False, True
            return
        for option, given in (("trigger", trigger), ("clean", clean), ("backlog", backlog)):
            if given:
                raise ConfigurationError(f"{option} has no effect: the DataFrame is not streaming")
        self._read = _Replay(df, layout, cache, name)
        self.interleave = bool(columns)

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
        if isinstance(self._read, _Following):
            self._read.passing.committed(offsets)

    @property
    def wants_committed(self) -> bool:
        return isinstance(self._read, _Following) and self._read.clean

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

    def __init__(self, df: DataFrame, layout: Layout, cache: Path, name: str | None) -> None:
        self._cache = str(cache)
        self._snapshot: Snapshot = take_snapshot(df, layout, cache, name)
        self.schema = self._snapshot.schema

    def plan_splits(self) -> Sequence[Split]:
        folder = self._snapshot.folder
        return [
            Split(f"{folder}/{index:05d}", {"file": f"{folder}/{file}"})
            for index, file in enumerate(self._snapshot.files)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        path = Path(self._cache, split.info["file"])
        if not path.is_file():
            raise SourceDataError(
                f"split {split.id}: {path} is gone; a job can only be restored while the data that "
                "Spark wrote for it is still there"
            )
        return ParquetFileReader(str(path), offset)


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
        refuse_unreadable(df)
        refuse_unknown(df, layout.order_by, "order_by")
        self._landing = Landing(cache / checked_name(name))
        self._splits = layout.splits
        self.clean = clean
        self.passing = Passing(self._landing, layout.splits, {})
        trigger_s = seconds(DEFAULT_TRIGGER if trigger is None else trigger, "trigger")
        how = Landings(layout.order_by, layout.splits, trigger_s, backlog_bytes)
        self.running: LandingQuery | None = LandingQuery(df, self._landing, how, name)
        self.schema = self.running.schema
        self.identity = Identity("Spark query", name, {"query id": str(self.running.query.id)})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "running": None}

    def plan_splits(self) -> Sequence[Split]:
        return [Split(f"{index:05d}", {"place": index}) for index in range(self._splits)]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return LandedReader(self._landing, split.info["place"], self.schema, offset)


def _backlog_bytes(clean: bool, backlog: Size | None) -> int | None:
    if backlog is not None and not clean:
        raise ConfigurationError("backlog has no effect without clean=True: nothing is deleted")
    return size_bytes(DEFAULT_BACKLOG if backlog is None else backlog, "backlog") if clean else None
