"""The streaming query behind a source: has Spark write each micro-batch to where a job reads it."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.spark.columns import column, single_timestamp_format
from minirt_connectors.spark.landing import POLL_S, Landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_LAYOUT = "layout.json"
_SCHEMA = "schema"
_CHECKPOINT = "query"


@dataclass(frozen=True, slots=True)
class Landings:
    """How a query lands its batches: the order of rows in each file, how many files, how many bytes in all.

    `backlog_bytes` is None without a limit.
    """

    order_by: tuple[str, ...]
    splits: int
    trigger_s: float
    backlog_bytes: int | None


class LandingQuery:
    """A running query. It lives in the program that has made it, as Spark's driver does."""

    def __init__(self, df: DataFrame, landing: Landing, how: Landings, name: str) -> None:
        """Start it, or go on where an earlier one of the same folder was."""
        self._landing = landing
        self._how = how
        self._stopping = threading.Event()
        _check_layout(df, landing, how)
        self.schema = _schema(df, landing)
        checkpoint = landing.folder / _CHECKPOINT
        if landing.next_number() and not checkpoint.exists():
            raise ConfigurationError(
                f"{checkpoint} is gone, by which Spark knows what has landed: choose another name or "
                f"delete {landing.folder}"
            )
        df.sparkSession.streams.addListener(_telling(landing, name))
        try:
            self.query: StreamingQuery = (
                df.writeStream.foreachBatch(self._land)
                .queryName(name)
                .option("checkpointLocation", checkpoint.as_uri())
                .trigger(processingTime=f"{max(1, round(how.trigger_s * 1000))} milliseconds")
                .start()
            )
        except Exception as error:
            raise ConfigurationError(f"Spark cannot start the query {name!r}: {error}") from error

    def stop(self) -> None:
        """End the query. The job reads what has landed, and waits for more."""
        self._stopping.set()
        self.query.stop()

    def _land(self, batch: DataFrame, number: int) -> None:
        """Called by Spark for one batch after another."""
        if number < self._landing.next_number():
            return
        self._wait_for_room()
        how, folder = self._how, self._landing.folder
        for abandoned in folder.glob(".landing-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        aside = Path(tempfile.mkdtemp(prefix=".landing-", dir=folder))
        dealt = batch.repartition(how.splits)
        if how.order_by:
            dealt = dealt.sortWithinPartitions(*[column(name) for name in how.order_by])
        with single_timestamp_format(batch.sparkSession):
            dealt.write.mode("overwrite").option("maxRecordsPerFile", 0).parquet(aside.as_uri())
        self._landing.publish(aside, number)

    def _wait_for_room(self) -> None:
        """Wait until the job has passed enough of what has landed."""
        limit = self._how.backlog_bytes
        while limit is not None and self._landing.bytes() > limit:
            if self._stopping.wait(POLL_S):
                raise RuntimeError("the query was stopped while it waited for the job to read on")


def _check_layout(df: DataFrame, landing: Landing, how: Landings) -> None:
    """Raise ConfigurationError if the folder was begun with other columns, order or number of splits."""
    wanted = {
        "columns": [f"{field.name} {field.dataType.simpleString()}" for field in df.schema],
        "order_by": list(how.order_by),
        "splits": how.splits,
    }
    path = landing.folder / _LAYOUT
    try:
        landing.folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps(wanted))
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot use the folder ({error})", str(landing.folder)) from error
    if found != wanted:
        raise ConfigurationError(
            f"{landing.folder} was begun with another layout: choose another name, or delete the folder; "
            f"it has {found}, asked for is {wanted}"
        )


def _schema(df: DataFrame, landing: Landing) -> pa.Schema:
    """The columns as they come out of the files that Spark writes."""
    folder = landing.folder / _SCHEMA
    if not (folder / "_SUCCESS").exists():
        empty = df.sparkSession.createDataFrame([], df.schema).coalesce(1)
        with single_timestamp_format(df.sparkSession):
            empty.write.mode("overwrite").parquet(folder.as_uri())
    [file] = folder.glob("part-*.parquet")
    return pq.read_schema(file).remove_metadata()


def _telling(landing: Landing, name: str) -> Any:
    """A listener that notes in the folder why the query of this name has failed."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Telling(StreamingQueryListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self._run: str | None = None

        def onQueryStarted(self, event: Any) -> None:
            # Spark calls it before `start` returns.
            if event.name == name and self._run is None:
                self._run = str(event.runId)
                landing.begin(self._run)

        def onQueryProgress(self, event: Any) -> None:
            pass

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            if str(event.runId) == self._run and event.exception is not None:
                landing.fail(self._run, event.exception)

    return Telling()
