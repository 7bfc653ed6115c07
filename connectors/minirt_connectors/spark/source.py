"""A Spark DataFrame as a source: Spark writes it once, minirt replays the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.units import positive
from minirt_connectors.cache import cache_folder
from minirt_connectors.spark.parquet_reader import ParquetFileReader
from minirt_connectors.spark.snapshot import Layout, Snapshot, take_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_SPLITS = 8


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

    Raises ConfigurationError for columns that are unknown or that records cannot carry, for a
    streaming DataFrame, and for a name whose data has other columns, order or number of splits.
    """

    def __init__(
        self,
        df: DataFrame,
        *,
        order_by: str | Sequence[str] | None = None,
        splits: int | None = None,
        cache_dir: str | None = None,
        name: str | None = None,
    ) -> None:
        if cache_dir is not None and "://" in cache_dir:
            raise ConfigurationError(f"cache_dir must be a folder, not a URL: {cache_dir}")
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by or ())
        layout = Layout(columns, positive("splits", DEFAULT_SPLITS if splits is None else splits))
        self._cache = str(Path(cache_dir or cache_folder("spark")).expanduser().absolute())
        self._snapshot: Snapshot = take_snapshot(df, layout, Path(self._cache), name)
        self.interleave = bool(columns)

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        folder = self._snapshot.folder
        return [
            Split(f"{folder}/{index:05d}", {"file": f"{folder}/{file}"})
            for index, file in enumerate(self._snapshot.files)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        """Reads the file that the split was planned from, even if the DataFrame has changed since."""
        path = Path(self._cache, split.info["file"])
        if not path.is_file():
            raise SourceDataError(
                f"split {split.id}: {path} is gone; a job can only be restored while the data that "
                "Spark wrote for it is still there"
            )
        return ParquetFileReader(str(path), offset)

    def schema(self) -> pa.Schema:
        return self._snapshot.schema
