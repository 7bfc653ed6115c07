"""The Kafka source against a real broker."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import confluent_kafka.admin
import pyarrow as pa
import pytest

import minirt as rt
from minirt.io.base import Split
from minirt.testing.contracts import SourceContract
from minirt.testing.contracts.source import read_all
from minirt_connectors.kafka import KafkaSource
from tests.kafka.broker import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.processes]


@pytest.fixture(scope="module")
def numbers(cluster: Cluster) -> str:
    """Three partitions, each with records of a transaction that was aborted, and marks at the end."""
    topic = cluster.topic(3)
    for partition in range(3):
        cluster.send(topic, [{"id": 10_000 * partition + n} for n in range(3000)], partition)
    producer = kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"test-{topic}"}
    )
    producer.init_transactions(30)
    for commit in (False, True, False):
        producer.begin_transaction()
        for partition in range(3):
            number = 10_000 * partition + 3000 if commit else -1
            producer.produce(topic, f'{{"id": {number}}}', partition=partition)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    return topic


def of_numbers(partitions: range = range(3)) -> list[Any]:
    return [{"id": 10_000 * partition + n} for partition in partitions for n in range(3001)]


class TestRows(SourceContract):
    @pytest.fixture
    def source(self, cluster: Cluster, numbers: str) -> rt.Source:
        return KafkaSource(cluster.bootstrap, numbers, bounded=True)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return of_numbers()


class TestColumns(TestRows):
    @pytest.fixture
    def source(self, cluster: Cluster, numbers: str) -> rt.Source:
        schema = pa.schema([("id", pa.int64())])
        return KafkaSource(
            cluster.bootstrap, numbers, bounded=True, schema=schema, metadata=["partition"]
        )

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [{**row, "kafka_partition": row["id"] // 10_000} for row in of_numbers()]


def rows(source: rt.Source) -> list[Any]:
    return [row for split in source.plan_splits(1) for row in read_all(source, split)]


def test_it_begins_where_it_is_told_to(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    times = [1_700_000_000_000 + n * 1000 for n in range(10)]
    cluster.send(topic, [{"n": n} for n in range(10)], times=times)

    def read(start: Any) -> list[int]:
        source = KafkaSource(cluster.bootstrap, topic, start=start, bounded=True)
        return [row["n"] for row in rows(source)]

    assert read("earliest") == list(range(10))
    assert read("latest") == []
    assert read({0: 7, 1: 0}) == [7, 8, 9]
    assert read(dt.datetime.fromtimestamp(1_700_000_004, dt.UTC)) == [4, 5, 6, 7, 8, 9]
    assert read(dt.datetime(2200, 1, 1, tzinfo=dt.UTC)) == []
    with pytest.raises(rt.ConfigurationError, match=r"offsets 0 to 10, not 11"):
        read({0: 11, 1: 0})
    with pytest.raises(rt.ConfigurationError, match=r"partitions \[0\]"):
        read({0: 1})


def test_metadata_comes_beside_the_value(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, [{"n": 1}], key=b"k", timestamp=1_700_000_000_000, headers={"h": b"x"})
    names = ("key", "timestamp", "partition", "offset", "headers")
    expected = {
        "kafka_key": b"k",
        "kafka_timestamp": 1_700_000_000_000,
        "kafka_partition": 0,
        "kafka_offset": 0,
        "kafka_headers": [{"name": "h", "value": b"x"}],
    }
    for format, value in (("json", {"n": 1}), ("raw", {"value": b'{"n": 1}'})):
        source = KafkaSource(cluster.bootstrap, topic, bounded=True, format=format, metadata=names)
        assert rows(source) == [{**value, **expected}]


def test_values_that_do_not_parse_fail_or_go_where_they_are_told_to(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, [{"n": 1}, b"\xff{", {"n": 2}, None])
    source = KafkaSource(cluster.bootstrap, topic, bounded=True)
    advice = 'on_error="skip" or "side_output" goes on'
    with pytest.raises(rt.BadRecordError, match=f"{topic}, partition 0, offset 1: .*{advice}"):
        rows(source)
    for on_error in ("skip", "side_output"):
        source = KafkaSource(cluster.bootstrap, topic, bounded=True, on_error=on_error)  # type: ignore[arg-type]
        reader = source.open_split(source.plan_splits(1)[0], None)
        found: list[Any] = []
        while (batch := reader.read()) is not None:
            found += batch
        bad = reader.take_bad_records()
        assert (found, reader.skipped) == ([{"n": 1}, {"n": 2}], 2)
        expected = {
            f"{topic}, partition 0, offset 1": b"\xff{",
            f"{topic}, partition 0, offset 3": None,
        }
        assert {one.location: one.raw for one in bad} == (
            expected if on_error == "side_output" else {}
        )
        reader.close()


def test_an_offset_that_retention_has_deleted_is_an_error(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, [{"n": n} for n in range(100)])
    source = KafkaSource(cluster.bootstrap, topic)
    [split] = source.plan_splits(1)
    gone = kafka.TopicPartition(topic, 0, 50)
    cluster.admin.delete_records([gone])[gone].result(30)
    for offset, told in (
        ([10, 1], "has no record"),
        (None, "has no record"),
        ([200, 1], "ends at offset 100"),
    ):
        reader = source.open_split(split, offset)
        with pytest.raises(rt.SourceDataError, match=f"partition 0 of '{topic}' {told}"):
            until_records(reader)
        reader.close()
    reader = source.open_split(split, [50, 1])
    assert until_records(reader)[0] == {"n": 50}
    reader.close()


def until_records(reader: rt.SplitReader, timeout_s: float = 30.0) -> list[Any]:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if batch := reader.read():
            return list(batch)
        time.sleep(0.01)
    raise AssertionError("nothing came")


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "endless"])
def test_a_topic_that_is_deleted_or_made_anew_is_an_error(cluster: Cluster, bounded: bool) -> None:
    """The consumer hears of neither, and would pass over the first records of the new topic."""
    topic = cluster.topic()
    cluster.send(topic, [{"id": n} for n in range(10)])
    source = KafkaSource(cluster.bootstrap, topic, bounded=bounded, discovery="100ms")
    [split] = source.plan_splits(1)
    reader = source.open_split(split, None)
    assert next(filter(None, iter(reader.read, None))) == [{"id": n} for n in range(10)]
    offset = reader.offset
    reader.close()
    cluster.admin.delete_topics([topic])[topic].result(60)
    behind = Split(split.id, {**split.info, "end": 20 if bounded else None})
    with pytest.raises(rt.SourceDataError, match=r"the topic was deleted$"):
        read_for_long(source, behind, offset)
    cluster.admin.create_topics([kafka.admin.NewTopic(topic, 1)])[topic].result(60)
    cluster.send(topic, [{"id": -n} for n in range(30)])
    with pytest.raises(rt.SourceDataError, match="made anew"):
        read_for_long(source, behind, offset)


def read_for_long(source: rt.Source, split: Split, offset: Any) -> None:
    reader, end = source.open_split(split, offset), time.monotonic() + 60
    try:
        while time.monotonic() < end:
            assert reader.read() == []
            time.sleep(0.02)
    finally:
        reader.close()


def test_more_than_fits_into_memory_waits_at_the_broker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minirt_connectors.kafka.fetching._BUFFERED_BYTES", 2000)
    topic = cluster.topic(2)
    for partition in range(2):
        cluster.send(topic, [{"id": n} for n in range(20_000)], partition)
    source = KafkaSource(cluster.bootstrap, topic, bounded=True)
    first, second = (source.open_split(split, None) for split in source.plan_splits(1))
    held = list(until_records(second))
    found: list[Any] = []
    while (batch := first.read()) is not None:
        assert isinstance(batch, list)
        found += batch
    while (batch := second.read()) is not None:
        held += batch
    assert found == held == [{"id": n} for n in range(20_000)]
    first.close()
    second.close()


@contextmanager
def closing(job: rt.Job) -> Iterator[rt.Job]:
    try:
        yield job
    finally:
        job.cancel()
        job.wait_for_end()


class Collect(rt.Process):
    """Writes numbers to a file as they come, since an unbounded job has no result."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process(self, record: Any, ctx: Any) -> Any:
        with self.path.open("a") as file:
            file.write(f"{record['n']}\n")
        return ()


def test_partitions_that_are_added_are_read_and_groups_are_told(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = cluster.topic(2), f"group-{time.monotonic_ns()}"
    cluster.send(topic, [{"n": n} for n in range(5)])
    source = KafkaSource(cluster.bootstrap, topic, discovery="100ms", group=group)
    out = tmp_path / "out"

    def start() -> rt.Job:
        env = rt.Environment("growing", parallelism=2)
        env.source(source, uid="in").process(Collect(out), uid="c").sink(rt.DiscardSink(), uid="o")
        checkpointing = rt.Checkpointing(tmp_path / "chk", interval="100ms")
        return env.start(checkpointing=checkpointing, restore="latest")

    def wait_for(count: int) -> None:
        end = time.monotonic() + 60
        while not out.exists() or len(out.read_text().split()) < count:
            assert time.monotonic() < end, out.read_text() if out.exists() else "nothing"
            time.sleep(0.05)

    with closing(start()) as job:
        wait_for(5)
        cluster.add_partitions(topic, 5)
        for partition in range(2, 5):
            cluster.send(topic, [{"n": 10 * partition}], partition)
        wait_for(8)
        job.stop()
    with closing(start()) as job:
        for partition in range(5):
            cluster.send(topic, [{"n": 100 + partition}], partition)
        wait_for(13)
        job.stop()
    expected = [0, 1, 2, 3, 4, 20, 30, 40, 100, 101, 102, 103, 104]
    assert sorted(map(int, out.read_text().split())) == expected
    assert told(cluster, topic, group, 5) == [6, 1, 2, 2, 2]


def told(cluster: Cluster, topic: str, group: str, partitions: int) -> list[int]:
    consumer = kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    places = [kafka.TopicPartition(topic, number) for number in range(partitions)]
    found = [place.offset for place in consumer.committed(places, timeout=30)]
    consumer.close()
    return found


def test_event_time_comes_from_the_record_and_silent_partitions_hold_nothing_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic(3)
    for partition in range(2):
        own = range(partition, 20, 2)
        times = [1_700_000_000_000 + n * 1000 for n in own]
        cluster.send(topic, [{"n": n} for n in own], partition, times)
    out = tmp_path / "out"
    env = rt.Environment("timed", parallelism=1)
    marks = rt.Watermarks.bounded("1s", timestamp="kafka_timestamp", idle_timeout="300ms")
    source = KafkaSource(cluster.bootstrap, topic, metadata=["timestamp"])
    timed = env.source(source, uid="in", watermarks=marks).key_by(lambda r: 0)
    timed.process(Due(out), uid="due").sink(rt.DiscardSink(), uid="o")
    with closing(env.start()):
        end = time.monotonic() + 60
        while not out.exists() or len(out.read_text().split()) < 15:
            assert time.monotonic() < end
            time.sleep(0.05)


class Due(rt.KeyedProcess):
    """Sets a timer for each record; a timer is due once all partitions are past it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process(self, record: Any, ctx: Any) -> Any:
        ctx.set_timer(ctx.timestamp)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        with self.path.open("a") as file:
            file.write(f"{timestamp}\n")


@pytest.mark.parametrize("runner", ["inline", "processes"])
def test_a_job_reads_a_topic_to_its_end(cluster: Cluster, numbers: str, runner: Any) -> None:
    sink = rt.CollectSink()
    env = rt.Environment("reading", parallelism=2)
    source = KafkaSource(cluster.bootstrap, numbers, bounded=True)
    env.source(source, uid="in").sink(sink, uid="out")
    env.execute(runner=runner)
    assert sorted(row["id"] for row in sink.rows) == [row["id"] for row in of_numbers()]


# Planted mistakes.


def offsets_side_by_side(source: KafkaSource) -> str:
    """Readers that share a consumer go on from each of their offsets: what is wrong, or nothing."""
    splits = source.plan_splits(1)
    readers = [source.open_split(split, None) for split in splits]
    seen = [0] * len(splits)
    offsets: list[list[tuple[Any, int]]] = [[] for _ in splits]
    open_ones = set(range(len(splits)))
    while open_ones:
        for number in sorted(open_ones):
            batch = readers[number].read()
            if batch is None:
                open_ones.remove(number)
                continue
            seen[number] += len(batch)
            offsets[number].append((readers[number].offset, seen[number]))
    for reader in readers:
        reader.close()
    for split, passed in zip(splits, offsets, strict=True):
        whole = read_all(source, split)
        for offset, count in dict(zip(map(str, passed), passed, strict=True)).values():
            if (rest := len(read_all(source, split, offset))) != len(whole) - count:
                return f"{split.id} at {offset}: {rest} records instead of {len(whole) - count}"
    return ""


def tells_what_a_checkpoint_holds(source: KafkaSource) -> str:
    """What a group is told are the offsets of the checkpoint, whatever was read meanwhile."""
    splits = source.plan_splits(1)
    reader = source.open_split(splits[0], None)
    until_records(reader)
    reader.close()
    source.committed({split.id: [7 + place, 3] for place, split in enumerate(splits)})
    cluster = Cluster(source._cluster.name)
    found = told(cluster, source._topic, source._group or "", len(splits))
    return "" if found == [7, 8, 9] else f"told: {found}"


class ReadAhead(KafkaSource):
    """Offsets are where the consumer has come to, which is ahead of what was given out."""

    def fetcher(self, partition: int) -> Any:
        fetcher = super().fetcher(partition)

        class Ahead(type(fetcher)):  # type: ignore[misc]
            def take(self, partition: int, wait_s: float) -> Any:
                messages, _ = super().take(partition, wait_s)
                return messages, self._partitions[partition].position

        fetcher.__class__ = Ahead
        return fetcher


class AtTheGroup(KafkaSource):
    """Goes on where the consumer group is, and not where the checkpoint is."""

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return super().open_split(split, None)


class TellsItsPosition(KafkaSource):
    """Tells the group the end of what there is."""

    def committed(self, offsets: Any) -> None:
        ends = {split.id: [split.info["end"], 1] for split in self.plan_splits(1)}
        super().committed(ends)


@pytest.mark.parametrize(
    ("check", "mistake"),
    [
        (offsets_side_by_side, ReadAhead),
        (offsets_side_by_side, AtTheGroup),
        (tells_what_a_checkpoint_holds, TellsItsPosition),
    ],
)
def test_a_planted_mistake_is_found(
    cluster: Cluster, numbers: str, monkeypatch: pytest.MonkeyPatch, check: Any, mistake: Any
) -> None:
    monkeypatch.setattr("minirt_connectors.kafka.fetching._TAKEN_AT_ONCE", 700)
    options = {"bounded": True, "group": f"group-{time.monotonic_ns()}"}
    assert check(KafkaSource(cluster.bootstrap, numbers, **options)) == ""
    assert check(mistake(cluster.bootstrap, numbers, **options)) != ""
