"""The streaming query behind a source: has Spark write each micro-batch to where a job reads it."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.spark.cores import Waiting, add_query, refuse_without_core
from minirt_connectors.spark.landing import POLL_S, Landing
from minirt_connectors.spark.layout import Layout
from minirt_connectors.spark.place import Place, hadoop_path
from minirt_connectors.spark.writing import refuse_private_folder, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

logger = logging.getLogger("minirt.spark")

_LAYOUT = "layout.json"
_SCHEMA = "schema"
_CHECKPOINT = "query"


@dataclass(frozen=True, slots=True)
class Landings:
    """How a query lands its batches: the layout of each, how often, and how many bytes may lie there.

    `backlog_bytes` is None without a limit.
    """

    layout: Layout
    trigger_s: float
    backlog_bytes: int | None


class LandingQuery:
    """A running query. It lives in the program that has made it, as Spark's driver does."""

    def __init__(self, df: DataFrame, landing: Landing, how: Landings, name: str) -> None:
        """Start it, or go on where an earlier one of the same folder was."""
        self._landing = landing
        self._how = how
        self._stopping = threading.Event()
        self.layout = _agreed_layout(df, landing, how.layout)
        refuse_private_folder(df.sparkSession, landing.folder)
        self.schema = _schema(df, landing)
        checkpoint = landing.folder / _CHECKPOINT
        if landing.next_number() and not checkpoint.exists():
            raise ConfigurationError(
                f"{checkpoint} is gone, by which Spark knows what has landed: choose another name or "
                f"delete {landing.folder}"
            )
        context = df.sparkSession.sparkContext
        refuse_without_core(context, name)
        df.sparkSession.streams.addListener(_telling(landing, name))
        try:
            self.query: StreamingQuery = (
                df.writeStream.foreachBatch(self._land)
                .queryName(name)
                .option("checkpointLocation", hadoop_path(checkpoint))
                .trigger(processingTime=f"{max(1, round(how.trigger_s * 1000))} milliseconds")
                .start()
            )
        except Exception as error:
            raise ConfigurationError(f"Spark cannot start the query {name!r}: {error}") from error
        add_query(context, self.query)
        self._waiting = Waiting(context, self.query)

    def tell_if_it_waits(self) -> None:
        """Say it once if the query gets no core for its batch."""
        told = self._waiting.look(self._landing.next_number())
        if told is not None:
            logger.warning("%s", told)

    def stop(self) -> None:
        """End the query. The job reads what has landed, and waits for more."""
        self._stopping.set()
        self.query.stop()

    def _land(self, batch: DataFrame, number: int) -> None:
        """Called by Spark for one batch after another."""
        if number < self._landing.next_number():
            return
        self._wait_for_room()
        folder = self._landing.folder
        for abandoned in folder.glob(".landing-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        aside = Path(tempfile.mkdtemp(prefix=".landing-", dir=folder))
        try:
            write_files(batch, self.layout, Place.at(aside))
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        self._landing.publish(aside, number)

    def _wait_for_room(self) -> None:
        """Wait until the job has passed enough of what has landed."""
        limit = self._how.backlog_bytes
        while limit is not None and self._landing.bytes() > limit:
            if self._stopping.wait(POLL_S):
                raise RuntimeError("the query was stopped while it waited for the job to read on")


def _agreed_layout(df: DataFrame, landing: Landing, layout: Layout) -> Layout:
    """The layout that the folder was begun with.

    Raises ConfigurationError if it was begun with other columns, order or number of splits.
    """
    wanted = {
        "columns": [f"{field.name} {field.dataType.simpleString()}" for field in df.schema],
        **layout.plain(),
    }
    path = landing.folder / _LAYOUT
    try:
        landing.folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps(wanted))
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot use the folder ({error})", str(landing.folder)) from error
    agreed = layout.as_written(found, wanted)
    if agreed is None:
        raise ConfigurationError(
            f"{landing.folder} was begun with another layout: choose another name, or delete the folder; "
            f"it has {found}, asked for is {wanted}"
        )
    if agreed.in_turns:
        logger.warning(
            "%s was begun by an earlier version, which keeps the order of %s within each split only; "
            "begin with another name for one order",
            landing.folder,
            ", ".join(layout.order_by),
        )
    return agreed


def _schema(df: DataFrame, landing: Landing) -> pa.Schema:
    """The columns as they come out of the files that Spark writes."""
    folder = landing.folder / _SCHEMA
    if not (folder / "_SUCCESS").exists():
        write_files(
            df.sparkSession.createDataFrame([], df.schema), Layout(splits=1), Place.at(folder)
        )
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
