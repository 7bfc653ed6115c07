"""Columns on their way into a link: every record reaches the receiver that it would reach as a row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minirt.config import Limits
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec
from minirt.errors import UserCodeError
from minirt.graph.execution import Link
from minirt.graph.keys import KeySelector
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Broadcast, Custom, Forward, Hash, Partitioning, Rebalance, Rescale
from minirt.runtime.channels.batches import batch_of
from minirt.runtime.channels.buffers import Outlet
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import Frame, Kind, watermark_frame
from minirt.runtime.channels.output import LinkOutput
from minirt.runtime.input.recovered import _Dealer

CODEC = RowCodec()
BY_K = Hash(KeySelector(("k",)))


class Sender:
    """A link from one subtask to several, with what has left it."""

    def __init__(
        self,
        partitioning: Partitioning,
        receivers: int = 3,
        *,
        frame_bytes: int = 1 << 16,
        max_parallelism: int = 128,
    ) -> None:
        self.link = Link(0, 0, "op", 1, 0, partitioning, None, 1, receivers, max_parallelism)
        self.channels = [OutputChannel(1 << 30, 1 << 30) for _ in self.link.receivers_of(0)]
        outlet = Outlet(
            "subtask",
            CODEC,
            Limits(column_frame_bytes=frame_bytes),
            SubtaskMetrics(),
            lambda channel: None,
        )
        self.output = LinkOutput(self.link, "link", 0, self.channels, "op", outlet)

    def emit(self, *batches: Batch) -> Sender:
        for batch in batches:
            self.output.emit(batch)
        return self

    def frames(self) -> list[list[Frame]]:
        """What has been sent into each channel since the last call."""
        return [list(iter(channel.poll, None)) for channel in self.channels]

    def received(self) -> list[list[Any]]:
        """The records of each channel, all that is held included."""
        self.output.flush()
        return [[record for frame in frames for record in rows(frame)] for frames in self.frames()]


def rows(frame: Frame) -> list[Any]:
    return batch_of(frame, CODEC).rows().records


def columns(times: Sequence[int] | None = None, **values: Any) -> Columns:
    table = pa.RecordBatch.from_pydict(values)
    return Columns(table, None if times is None else np.array(times, np.int64))


def numbered(count: int, keys: int = 10) -> Columns:
    return columns(k=[n * 7 % keys for n in range(count)], n=list(range(count)))


KEYS: dict[str, pa.Array] = {
    "int64": pa.array([1, 2, None, 3, 1, -5, 2**62, 0]),
    "uint64": pa.array([1, 2, None, 2**64 - 1, 1, 0, 7, 8], pa.uint64()),
    "bool": pa.array([True, False, None, True, True, False, None, False]),
    "string": pa.array(["a", "", None, "ä", "a", "x" * 99, "b", "c"]),
    "large_string": pa.array(["a", "", None, "ä", "a", "y", "b", "c"], pa.large_string()),
    "string_view": pa.array(["a", "", None, "ä", "a", "z" * 40, "b", "c"], pa.string_view()),
    "binary": pa.array([b"a", b"", None, b"\xff", b"a", b"y", b"b", b"c"]),
    "dictionary": pa.array(["a", "", None, "ä", "a", "y", "b", "c"]).dictionary_encode(),
    "date32": pa.array(
        [dt.date(1970, 1, 1), None, *[dt.date(2024, 2, day) for day in range(1, 7)]]
    ),
    "timestamp": pa.array([dt.datetime(2024, 1, 1, hour) for hour in range(8)]),
    "null": pa.nulls(8),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("max_parallelism", [128, 100])
def test_keys_lead_columns_where_they_lead_rows(kind: str, max_parallelism: int) -> None:
    batch = columns(k=KEYS[kind], n=list(range(8)))
    as_columns = Sender(BY_K, 5, max_parallelism=max_parallelism).emit(batch).received()
    as_rows = Sender(BY_K, 5, max_parallelism=max_parallelism).emit(batch.rows()).received()
    assert as_columns == as_rows
    assert sum(map(len, as_columns)) == 8


@pytest.mark.parametrize(
    "key",
    [KeySelector(("k", "n")), KeySelector(function=lambda record: (record["n"] % 30, "x"))],
    ids=["two columns", "function"],
)
@pytest.mark.parametrize("deal", [Hash, lambda key: Custom(lambda k, p: k[0] * 5 % p, key)])
def test_other_keys_do_too(key: KeySelector, deal: Callable[[KeySelector], Partitioning]) -> None:
    batch = numbered(100)
    as_columns = Sender(deal(key)).emit(batch).received()
    assert as_columns == Sender(deal(key)).emit(batch.rows()).received()
    assert all(as_columns)


@pytest.mark.parametrize(
    "partitioning", [BY_K, Custom(lambda k, p: k * 5 % p, KeySelector(("k",)))]
)
def test_what_is_recovered_is_dealt_as_it_was(partitioning: Partitioning) -> None:
    batch = Columns(numbered(100).table, np.arange(100))
    sender = Sender(partitioning).emit(batch)
    for receiver, wanted in enumerate(sender.received()):
        kept = _Dealer(sender.link, receiver).keep(batch)
        assert isinstance(kept, Columns)
        assert kept.rows().records == wanted
        assert kept.timestamps is not None
        assert kept.timestamps.tolist() == [record["n"] for record in wanted]


@pytest.mark.parametrize("partitioning", [Rebalance(), Rescale()])
def test_dealing_in_turn_is_even_over_many_batches(partitioning: Partitioning) -> None:
    sender = Sender(partitioning, frame_bytes=1)
    sender.emit(*(columns(n=[number]) for number in range(7)), columns(n=list(range(7, 18))))
    received = [[record["n"] for record in part] for part in sender.received()]
    assert sorted(map(len, received)) == [6, 6, 6]
    assert sorted(chain.from_iterable(received)) == list(range(18))
    assert all(part == sorted(part) for part in received)


@pytest.mark.parametrize(("partitioning", "channels"), [(Broadcast(), 3), (Forward(), 1)])
def test_undealt_columns_go_whole_to_every_channel(
    partitioning: Partitioning, channels: int
) -> None:
    batch = numbered(10)
    assert Sender(partitioning).emit(batch).received() == [batch.rows().records] * channels


def test_timestamps_travel_with_their_records() -> None:
    sender = Sender(BY_K).emit(Columns(numbered(50).table, np.arange(50) * 3))
    sender.output.flush()
    for [frame] in sender.frames():
        batch = batch_of(frame, CODEC)
        assert isinstance(batch, Columns)
        assert batch.timestamps is not None
        assert batch.timestamps.tolist() == [record["n"] * 3 for record in batch.rows().records]


def test_rows_and_columns_keep_their_order() -> None:
    sender = Sender(Hash(KeySelector(("k",))), 2)
    sender.emit(
        columns(k=[1, 1], n=[0, 1]),
        Rows([{"k": 1, "n": 2}]),
        columns(k=[1], n=[3]),
        columns(k=[1], n=[4], times=[9]),
        Rows([{"k": 1, "n": 5}], [9]),
        Rows([{"k": 1, "n": 6}]),
    )
    [received] = filter(None, sender.received())
    assert [record["n"] for record in received] == list(range(7))


def test_a_control_frame_goes_behind_columns_that_were_held() -> None:
    sender = Sender(Forward()).emit(numbered(5))
    sender.output.control(watermark_frame(3))
    assert [[frame.kind for frame in frames] for frames in sender.frames()] == [
        [Kind.COLUMNS, Kind.WATERMARK]
    ]


def test_small_pieces_are_gathered_into_one_frame_until_the_timeout() -> None:
    sender = Sender(BY_K, 2)
    for _ in range(10):
        sender.output.began_at += 1
        sender.emit(numbered(10))
    assert sender.frames() == [[], []]
    assert sender.output.oldest == 1.0
    sender.output.flush_older_than(0.5)
    assert sender.frames() == [[], []]
    sender.output.flush_older_than(1.0)
    assert [len(frames) for frames in sender.frames()] == [1, 1]
    assert sender.output.oldest is None


def test_full_frames_do_not_wait_and_large_batches_are_cut() -> None:
    sender = Sender(Rebalance(), 2, frame_bytes=1600)
    sender.emit(numbered(1000))
    sizes = [frame.records for frames in sender.frames() for frame in frames]
    assert sum(sizes) == 1000
    assert all(50 <= size <= 150 for size in sizes)


def test_a_skewed_key_gets_frames_of_the_same_size() -> None:
    sender = Sender(BY_K, 8, frame_bytes=1600)
    sender.emit(numbered(4000, keys=1))
    [sizes] = [[frame.records for frame in frames] for frames in sender.frames() if frames]
    assert max(sizes) <= 150


def test_a_schema_that_changes_begins_a_new_frame() -> None:
    sender = Sender(Forward())
    sender.emit(columns(a=[1]), columns(a=[2], b=["x"]), columns(a=[3.5]))
    assert sender.received() == [[{"a": 1}, {"a": 2, "b": "x"}, {"a": 3.5}]]


NESTED: dict[str, pa.Array] = {
    "list": pa.array([[1], None, []]),
    "struct": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "list of dictionaries": pa.array([["a"], None, ["b", "a"]]).cast(
        pa.list_(pa.dictionary(pa.int32(), pa.string()))
    ),
    "decimal": pa.array([1, None, 2]).cast(pa.decimal128(30, 2)),
    "binary_view": pa.array([b"a", None, b"c" * 40], pa.binary_view()),
    "double": pa.array([0.5, None, 2.5]),
}


@pytest.mark.parametrize("kind", NESTED)
def test_columns_of_any_type_pass_through(kind: str) -> None:
    batch = columns(k=[1, 2, 3], value=NESTED[kind])
    sender = Sender(BY_K).emit(batch, batch)
    sender.output.flush()
    found = [batch_of(frame, CODEC) for frames in sender.frames() for frame in frames]
    records = [record for part in found for record in part.rows().records]
    assert sorted(records, key=lambda r: r["k"]) == sorted(
        batch.rows().records * 2, key=lambda r: r["k"]
    )
    assert all(isinstance(p, Columns) and p.table.schema == batch.table.schema for p in found)


def test_dictionaries_too_large_for_one_index_type_are_sent_one_by_one() -> None:
    parts = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(100), pa.int8()), pa.array([f"{part}-{n}" for n in range(100)])
        )
        for part in range(3)
    ]
    received = Sender(Forward()).emit(*(columns(word=part) for part in parts)).received()
    assert [r["word"] for r in received[0]] == [
        f"{part}-{n}" for part in range(3) for n in range(100)
    ]


def test_a_column_that_arrow_cannot_pick_from_is_named() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    with pytest.raises(UserCodeError, match="operator op emits: column 'r' of type run_end"):
        Sender(BY_K).emit(columns(k=[1, 2, 3], r=runs)).received()


@pytest.mark.parametrize("receivers", [1, 3])
def test_key_columns_that_cannot_be_keys_are_refused(receivers: int) -> None:
    sender = Sender(BY_K, receivers)
    with pytest.raises(UserCodeError, match=r"operator op: there is no column 'k'.* emits a, b"):
        sender.emit(columns(a=[1], b=[2]))
    with pytest.raises(UserCodeError, match=r"operator op: column 'k'.* of type double"):
        sender.emit(columns(k=[1.5]))
    sender.emit(columns(k=[1]))
    with pytest.raises(UserCodeError, match="there is no column 'k'"):
        sender.emit(columns(changed=[1]))


@pytest.mark.parametrize("receivers", [1, 3])
def test_a_key_function_that_fails_is_named_with_its_record(receivers: int) -> None:
    key = KeySelector(function=lambda record: record["missing"])
    with pytest.raises(UserCodeError, match=r"op, key of the next operator.*\{'a': 1\}"):
        Sender(Hash(key), receivers).emit(columns(a=[1])).received()
    unstable = KeySelector(function=lambda record: record["a"])
    with pytest.raises(UserCodeError, match=r"op, key of the next operator.*float"):
        Sender(Hash(unstable), receivers).emit(columns(a=[1.5])).received()


def test_a_partitioner_is_called_for_each_record_and_checked() -> None:
    called: list[int] = []

    def choose(key: int, parallelism: int) -> int:
        called.append(key)
        return key

    sender = Sender(Custom(choose, KeySelector(("k",))))
    assert sender.emit(columns(k=[2, 0, 2])).received() == [[{"k": 0}], [], [{"k": 2}, {"k": 2}]]
    assert called == [2, 0, 2]
    with pytest.raises(UserCodeError, match=r"the partitioner returned 3; .* from 0 to 2"):
        sender.emit(columns(k=[3])).received()


def test_runs_of_frames_hold_the_records_in_order() -> None:
    sender = Sender(BY_K, 4, frame_bytes=800).emit(*(numbered(n) for n in (3, 700, 0, 1, 90)))
    for part in sender.received():
        by_batch = [record["n"] for record in part]
        assert sum(a >= b for a, b in pairwise(by_batch)) <= 3
