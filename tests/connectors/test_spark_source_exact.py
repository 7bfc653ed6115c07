"""SparkSource gives exactly the rows of the DataFrame, in the order that it states, or it is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.errors import ConfigurationError, SourceDataError, StorageError
from minirt.io.base import Source, Split
from minirt_connectors.spark import SparkSource, writing
from minirt_connectors.spark import place as place_module
from minirt_connectors.spark.landing import LandedReader, Landing
from minirt_connectors.spark.layout import Layout
from minirt_connectors.spark.place import Place
from minirt_connectors.spark.snapshot import take_snapshot
from minirt_connectors.spark.writing import refuse_private_folder, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# An example takes Spark a second: few are drawn, and none is made smaller.
QUICK = settings(max_examples=12, phases=[Phase.explicit, Phase.generate])

FOLDERS = st.text(
    st.sampled_from("aZ09 %:+#&=?*[]{}\\\"'~,;@!$()^äß漢🙂."), min_size=1, max_size=24
).filter(lambda name: name not in (".", ".."))
UTC = dt.UTC
INSTANTS = st.datetimes(
    dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=st.just(UTC), allow_imaginary=False
).map(lambda at: at.replace(fold=0))
LOCALS = INSTANTS.map(lambda at: at.replace(tzinfo=None))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.sampled_from(["a", "b ", "B", "ä"]),
            "time": st.integers(0, 5),
            "day": st.none() | st.dates(),
            "at": st.none() | INSTANTS,
            "local": st.none() | LOCALS,
            "x": st.none() | st.floats(allow_nan=False, width=64),
        }
    ),
    max_size=30,
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("time", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("x", pa.float64()),
    ]
)
COLUMNS = "key string, time long, day date, at timestamp, local timestamp_ntz, x double"
LAYOUTS = st.sampled_from(
    [
        {},
        {"order_by": "time"},
        {"order_by": ["time", "at"]},
        {"order_by": "time", "partition_by": "key"},
    ]
)
SESSIONS = st.fixed_dictionaries(
    {
        "spark.sql.parquet.datetimeRebaseModeInWrite": st.sampled_from(
            ["LEGACY", "EXCEPTION", "CORRECTED"]
        ),
        "spark.sql.parquet.outputTimestampType": st.sampled_from(["INT96", "TIMESTAMP_MILLIS"]),
        "spark.sql.parquet.writeLegacyFormat": st.sampled_from(["true", "false"]),
        "spark.sql.parquet.compression.codec": st.sampled_from(["snappy", "zstd", "lzo", "brotli"]),
        "spark.sql.session.timeZone": st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    }
)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


class Conf:
    """Options of a session while a block runs."""

    def __init__(self, spark: SparkSession, options: dict[str, str]) -> None:
        self._conf = spark.conf
        self._options = options
        self._before = {name: spark.conf.get(name, None) for name in options}

    def __enter__(self) -> None:
        for name, value in self._options.items():
            self._conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                self._conf.unset(name)
            else:
                self._conf.set(name, value)


def read_split(source: Source, split: Split) -> list[dict[str, Any]]:
    reader = source.open_split(split, None)
    rows: list[dict[str, Any]] = []
    while (batch := reader.read()) is not None:
        assert isinstance(batch, pa.RecordBatch)
        rows += batch.to_pylist()
    reader.close()
    return rows


def read_all(source: Source) -> list[dict[str, Any]]:
    return [row for split in source.plan_splits(2) for row in read_split(source, split)]


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """The rows as a multiset; unlike equality, text tells apart what is equal, such as -0.0 and 0.0."""
    return Counter(
        repr(sorted((name, plain(value)) for name, value in row.items())) for row in rows
    )


def plain(value: Any) -> Any:
    """Of an instant, one form for whatever writes its zone."""
    aware = isinstance(value, dt.datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if aware else value


@QUICK
@given(ROWS, FOLDERS, LAYOUTS, SESSIONS, st.integers(1, 4))
@example(
    [{"key": "a", "time": 1, "day": dt.date(1500, 3, 1), "at": dt.datetime(1500, 1, 1, tzinfo=UTC),
      "local": dt.datetime(1582, 10, 6), "x": -0.0}],
    "my caché %20:x",
    {"order_by": "time"},
    {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"},
    2,
)  # fmt: skip
def test_a_source_has_exactly_the_rows_of_its_frame(
    spark: SparkSession,
    base: Path,
    rows: list[dict[str, Any]],
    folder: str,
    layout: dict[str, Any],
    session: dict[str, str],
    splits: int,
) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA), COLUMNS)
    with Conf(spark, session):
        source = SparkSource(frame, splits=splits, cache_dir=str(base / folder), **layout)
    read = [read_split(source, split) for split in source.plan_splits(2)]
    assert counted([row for part in read for row in part]) == counted(rows)
    if layout:
        check_order(read, layout)


def check_order(read: list[list[dict[str, Any]]], layout: dict[str, Any]) -> None:
    """All rows in one order, or the order within each key, whose rows are then in one split."""
    if "partition_by" not in layout:
        [read] = [read]
        assert len(read) == 1
        times = [row["time"] for row in read[0]]
        assert times == sorted(times)
        return
    places: dict[Any, int] = {}
    for place, part in enumerate(read):
        for key in {row["key"] for row in part}:
            assert places.setdefault(key, place) == place
            times = [row["time"] for row in part if row["key"] == key]
            assert times == sorted(times)


@pytest.mark.processes
@pytest.mark.parametrize("partition_by", [None, "k"])
def test_a_job_with_keys_sees_rows_in_order(
    spark: SparkSession, tmp_path: Path, partition_by: str | None
) -> None:
    frame = spark.range(20_000).selectExpr("id % 7 AS k", "20000 - id AS time")
    source = SparkSource(
        frame, order_by="time", partition_by=partition_by, cache_dir=str(tmp_path / "cache")
    )
    env, sink = rt.Environment("order", parallelism=2), rt.CollectSink()
    watermarks = rt.Watermarks.monotonous(timestamp="time")
    rows = env.source(source, uid="rows", watermarks=watermarks)
    rows.key_by("k").process(Seen(), uid="seen").sink(sink, uid="out")
    env.execute()
    assert len(sink.rows) == 20_000
    assert [row for row in sink.rows if not row["in_order"]] == []


class Seen(rt.KeyedProcess):
    """Says whether a row comes behind all earlier ones of its key."""

    latest = rt.ValueState(-1)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Any:
        yield {"in_order": record["time"] > self.latest.value}
        self.latest.value = max(record["time"], self.latest.value)


def test_one_order_goes_on_at_every_offset(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(20_000).selectExpr("id", "20000 - id AS time")
    source = SparkSource(frame, order_by="time", splits=3, cache_dir=str(tmp_path))
    [split] = source.plan_splits(4)
    assert len(split.info["files"]) == 3
    reader = source.open_split(split, None)
    seen, offsets = [0], [reader.offset]
    while (batch := reader.read()) is not None:
        assert isinstance(batch, pa.RecordBatch)
        seen.append(seen[-1] + batch.num_rows)
        offsets.append(reader.offset)
    assert seen[-1] == 20_000
    for position, offset in zip(seen, offsets, strict=True):
        again = source.open_split(split, json.loads(json.dumps(offset)))
        rest = [n for part in iter(again.read, None) for n in part["time"].to_pylist()]
        assert rest == list(range(position + 1, 20_001))
    with pytest.raises(SourceDataError, match="there is no file 3"):
        source.open_split(split, [3, 0, 0])


def test_a_batch_of_a_stream_is_read_in_one_order(spark: SparkSession, tmp_path: Path) -> None:
    landing, layout = Landing(tmp_path), Layout(("time",), 3)
    for number in (0, 1):
        aside = tmp_path / ".aside"
        aside.mkdir()
        frame = spark.range(50).selectExpr(f"{number} * 100 + (id * 7 % 50) AS time")
        write_files(frame, layout, Place.at(aside))
        landing.publish(aside, number)
    reader = LandedReader(landing, None, pa.schema([("time", pa.int64())]), None)
    found: list[int] = []
    for _ in range(20):
        batch = reader.read()
        if isinstance(batch, pa.RecordBatch):
            found += batch["time"].to_pylist()
            reader = LandedReader(
                landing, None, batch.schema, json.loads(json.dumps(reader.offset))
            )
    assert found == [*range(50), *range(100, 150)]


class Bucket(LocalFileSystem):
    """An object store, as far as a source can tell: folders exist by their objects."""

    protocol = ("s3",)
    root = ""
    cachable = False

    def __init__(self, *, key: str, **options: Any) -> None:
        assert key == "k"
        super().__init__(auto_mkdir=True, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return f"{cls.root}/{path.removeprefix('s3://')}" if path.startswith("s3://") else path


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`s3://b`, which Spark reaches by its own configuration, and fsspec by options."""
    monkeypatch.setattr(Bucket, "root", str(tmp_path))
    monkeypatch.setattr(Place, "is_local", property(lambda place: type(place.files) is not Bucket))
    monkeypatch.setitem(place_module._SPARKS, "s3", "file")
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "s3", Bucket)
    (tmp_path / "b").mkdir()
    url_of = Place.of_url.__func__  # type: ignore[attr-defined]

    def of_url(cls: type[Place], url: str, options: Any) -> Place:
        place: Place = url_of(cls, url, options)
        return replace(place, spark_url=place.spark_url.replace("file://", f"file://{tmp_path}/"))

    monkeypatch.setattr(Place, "of_url", classmethod(of_url))
    return tmp_path / "b"


def test_an_object_store_can_be_the_cache(
    spark: SparkSession, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "order_by": "id",
        "splits": 3,
        "cache_dir": "s3://b/cache",
        "storage_options": {"key": "k"},
    }
    with monkeypatch.context() as patch:
        without_a_file(patch)
        with pytest.raises(ConfigurationError, match=r"do not share the folder"):
            SparkSource(spark.range(20), **options)
    assert list(bucket.rglob("*.parquet")) == []
    source = SparkSource(spark.range(20), **options)
    written = sorted(bucket.rglob("*.parquet"))
    assert [row["id"] for row in read_all(source)] == list(range(20))
    assert SparkSource(spark.range(20), **options).plan_splits(1) == source.plan_splits(1)
    assert sorted(bucket.rglob("*.parquet")) == written
    for path in written:
        path.unlink()
    with pytest.raises(SourceDataError, match="is gone"):
        source.open_split(source.plan_splits(1)[0], None)
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match="must be a folder, not s3://b/cache"):
        SparkSource(stream, name="n", cache_dir="s3://b/cache")


def without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor of its own disk: what one of its tasks has written is not there for the driver."""
    write = writing._write

    def lose(dealt: DataFrame, place: Place, options: dict[str, Any]) -> int:
        rows = write(dealt, place, options)
        os.unlink(place.path(place.parts()[0]))
        return rows

    monkeypatch.setattr(writing, "_write", lose)


@pytest.mark.parametrize("name", [None, "few"])
@pytest.mark.parametrize("splits", [1, 3])
def test_rows_that_an_executor_keeps_to_itself_are_missed(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    splits: int,
) -> None:
    with monkeypatch.context() as patch:
        without_a_file(patch)
        with pytest.raises(ConfigurationError, match=r"do not share the folder.*cache_dir"):
            SparkSource(spark.range(20), name=name, splits=splits, cache_dir=str(tmp_path))
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    again = SparkSource(spark.range(20), name=name, splits=splits, cache_dir=str(tmp_path))
    assert len(read_all(again)) == 20


def test_executors_of_a_cluster_are_asked_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        """The session, as that of a cluster."""

        conf = type("Conf", (), {"get": staticmethod(lambda *_: "spark://host:7077")})

        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

    refuse_private_folder(Elsewhere(), tmp_path)  # type: ignore[arg-type]
    without_a_file(monkeypatch)
    with pytest.raises(ConfigurationError, match="do not share the folder"):
        refuse_private_folder(Elsewhere(), tmp_path)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_data_that_earlier_starts_have_lost_is_not_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    SparkSource(spark.range(20), splits=2, cache_dir=str(tmp_path))
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    marker = json.loads((folder / "_minirt.json").read_text())
    assert marker.pop("rows") == 20
    marker["files"].pop()
    # As an earlier version has written it.
    (folder / "_minirt.json").write_text(json.dumps(marker))
    with pytest.raises(StorageError, match=r"20 rows were written, \d+ are there"):
        SparkSource(spark.range(20), splits=2, cache_dir=str(tmp_path))


def test_named_data_of_an_earlier_version_stays_usable(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"order_by": "id", "splits": 2, "cache_dir": str(tmp_path)}
    take_snapshot(
        spark.range(9).toDF("id"), Layout(("id",), 2, (), True), Place.at(tmp_path), "few"
    )
    source = SparkSource(spark.range(9), name="few", **options)
    assert [sorted(split.info) for split in source.plan_splits(1)] == [["file"], ["file"]]
    assert "was written by an earlier version" in caplog.text
    with pytest.raises(ConfigurationError, match="another layout"):
        SparkSource(spark.range(9), name="few", partition_by="id", **options)


def test_zeros_of_either_sign_are_other_content(spark: SparkSession, tmp_path: Path) -> None:
    for sign in ("", "-"):
        frame = spark.sql(f"SELECT {sign}0.0D AS x, {sign}0.0F AS y")
        [row] = read_all(SparkSource(frame, splits=1, cache_dir=str(tmp_path)))
        assert (str(row["x"]), str(row["y"])) == (f"{sign}0.0", f"{sign}0.0")


def test_a_frame_that_changes_by_itself_is_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.range(3).selectExpr("rand() AS x")
    SparkSource(frame, cache_dir=str(tmp_path), name="pinned")
    assert caplog.text == ""
    SparkSource(frame, cache_dir=str(tmp_path))
    assert "the DataFrame has other rows each time" in caplog.text


def test_a_restored_split_of_other_data_is_told_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = SparkSource(spark.range(9), splits=2, cache_dir=str(tmp_path))
    now = SparkSource(spark.range(5), splits=2, cache_dir=str(tmp_path))
    for split in now.plan_splits(1):
        read_split(now, split)
    assert caplog.text == ""
    for split in earlier.plan_splits(1):
        read_split(now, split)
    assert caplog.text.count("the DataFrame is not the one that the checkpoint was taken of") == 1
