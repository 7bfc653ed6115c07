"""`map_batches` with a size: what each call gets, and what a snapshot holds of what is gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec
from minirt.errors import ConfigurationError
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.restore_options import RestoreOptions
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.frames import (
    ACTIVE_FRAME,
    END_FRAME,
    IDLE_FRAME,
    Frame,
    Kind,
    barrier_frame,
    watermark_frame,
    watermark_of,
)
from minirt.runtime.cluster.local import LocalPorts
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.input.in_flight import stored_frames
from minirt.runtime.subtask.assembly import assemble
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.runtime.subtask.snapshot import SnapshotUpload
from tests.runtime.stepped import SteppedJob

CODEC = RowCodec()
WAIT_S = 0.1


class Gatherer:
    """source > map_batches > sink: the subtask in the middle, in the hands of a test.

    `calls` are the batches that its function got, `sent` what left it.
    """

    def __init__(
        self,
        *,
        size: int = 4,
        wait: Any = WAIT_S,
        format: Any = "rows",
        senders: int = 1,
        mode: str = "unaligned",
        debloat: str | None = None,
    ) -> None:
        env = rt.Environment()
        numbers = env.source(rt.SequenceSource.endless(), parallelism=senders).rebalance()
        numbers.map_batches(lambda batch: batch, format, size=size, wait=wait).rebalance().sink(
            rt.DiscardSink()
        )
        self.now_s, self.mode = 1000.0, mode
        options = rt.Options(buffer_timeout=0, debloat=debloat)
        graph = cloudpickle.dumps(build_execution_graph(env.graph()))
        self.uploads: list[SnapshotUpload] = []
        built = assemble(
            JobPackage(graph, options, MODES, None),
            Deployment(1),
            SubtaskId(1, 0),
            LocalPorts(self, self.uploads.append, lambda subtask: None),
            TimedPacer(60.0),
            lambda channel: None,
        )
        self.subtask, (self.output,) = built.subtask, built.outputs.values()
        self.ends = [end for _, end in built.inputs.values()]
        self.output.on_credit(0, 1 << 19)
        self._received = 0
        self.calls: list[Any] = []
        process = self.subtask.chain.process

        def noted(batch: Batch, *where: int) -> None:
            self.calls.append(batch.rows().records)
            process(batch, *where)

        self.subtask.chain.process = noted  # type: ignore[method-assign]

    def monotonic(self) -> float:
        """The clock of the subtask: this is what it asks."""
        return self.now_s

    def now(self) -> float:
        return self.now_s

    def put(self, *frames: Frame, channel: int = 0) -> Gatherer:
        for frame in frames:
            self.subtask.on_frame(channel, frame)
        return self

    def work(self) -> list[Any]:
        """Run until there is nothing to do; returns what left: records, watermarks and other kinds."""
        while self.subtask.runnable:
            self.subtask.run_slice()
        self.subtask.on_time()
        sent: list[Any] = []
        while (frame := self.output.poll()) is not None:
            if frame.is_data:
                self._received += frame.size
                self.output.on_credit(self._received, 1 << 19)
                sent += batch_of(frame, CODEC).rows().records
            elif frame.kind == Kind.WATERMARK:
                sent.append(f"w{watermark_of(frame)}")
            else:
                sent.append(frame.kind)
        return sent

    def barrier(self, channel: int = 0) -> Gatherer:
        return self.put(barrier_frame(Barrier(1, self.mode, 0.0)), channel=channel)

    def captured(self) -> list[list[Any]]:
        """By channel, what the snapshot holds of records in flight."""
        (upload,) = self.uploads
        contents = [b"".join(frames) for _, frames in upload.in_flight]
        return [
            [
                record
                for frame in stored_frames(BytesIO(content), "")
                for record in batch_of(frame, CODEC).rows().records
            ]
            for content in contents
        ]


def rows(*records: Any, times: Sequence[int] | None = None) -> Frame:
    return data_frame(Rows(list(records), None if times is None else list(times)), CODEC)


def columns(*numbers: int, name: str = "n") -> Frame:
    return data_frame(Columns(pa.record_batch({name: np.array(numbers)})), CODEC)


def test_small_frames_are_gathered_and_large_ones_cut() -> None:
    gatherer = Gatherer()
    gatherer.put(rows(0), rows(1, 2), rows(3, 4, 5), rows(6, 7, 8, 9, 10, 11, 12))
    assert gatherer.work() == list(range(12))
    assert gatherer.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_what_has_waited_long_enough_is_given_out() -> None:
    gatherer = Gatherer()
    gatherer.put(rows(0))
    assert gatherer.work() == []
    assert gatherer.subtask.wake_at == gatherer.now_s + WAIT_S
    gatherer.now_s += WAIT_S / 2
    gatherer.put(rows(1))
    assert gatherer.work() == []
    gatherer.now_s += WAIT_S / 2 + 1e-6
    assert gatherer.subtask.wake_at == pytest.approx(gatherer.now_s)
    assert gatherer.work() == [0, 1]
    assert gatherer.subtask.wake_at is None
    gatherer.put(rows(2))
    assert gatherer.work() == []


def test_without_a_wait_a_batch_is_what_is_there() -> None:
    gatherer = Gatherer(wait=0)
    gatherer.put(rows(0), rows(1), rows(2))
    assert gatherer.work() == [0, 1, 2]
    assert gatherer.calls == [[0, 1, 2]]


def test_what_is_gathered_after_a_wait_includes_what_came_meanwhile() -> None:
    gatherer = Gatherer()
    gatherer.put(rows(0)).work()
    gatherer.now_s += 2 * WAIT_S
    gatherer.put(rows(1), watermark_frame(7), rows(2))
    assert gatherer.work() == [0, 1, 2, "w7"]


def test_a_watermark_follows_behind_the_records_before_it_and_ends_no_batch() -> None:
    gatherer = Gatherer()
    gatherer.put(watermark_frame(1), rows(0, 1), watermark_frame(2), rows(2), IDLE_FRAME)
    assert gatherer.work() == ["w1"]
    gatherer.put(ACTIVE_FRAME, rows(3, 4), watermark_frame(3))
    assert gatherer.work() == [0, 1, 2, 3, "w2", Kind.IDLE, Kind.ACTIVE]
    gatherer.now_s += WAIT_S
    assert gatherer.work() == [4, "w3"]
    assert gatherer.calls == [[0, 1, 2, 3], [4]]


def test_under_load_watermarks_are_not_held_back() -> None:
    gatherer, sent = Gatherer(), []
    for number in range(100):
        sent += gatherer.put(rows(*[number] * 3), watermark_frame(number)).work()
    marks = [one for one in sent if isinstance(one, str)]
    assert len(marks) >= 98
    for mark in marks:
        assert number_of(mark) not in sent[sent.index(mark) :]


def number_of(mark: str) -> int:
    return int(mark[1:])


def test_timestamps_stay_with_their_records() -> None:
    gatherer = Gatherer()
    gatherer.put(rows(0, 1, times=[10, 11]), rows(2, 3, times=[12, 13]))
    while gatherer.subtask.runnable:
        gatherer.subtask.run_slice()
    gatherer.subtask.on_time()
    frame = gatherer.output.poll()
    assert frame is not None
    assert batch_of(frame, CODEC) == Rows([0, 1, 2, 3], [10, 11, 12, 13])


@pytest.mark.parametrize("ending", [END_FRAME, "barrier"])
def test_a_barrier_that_does_not_overtake_and_the_end_end_the_batch(ending: Any) -> None:
    gatherer = Gatherer(mode="aligned")
    gatherer.put(rows(0), rows(1))
    assert gatherer.work() == []
    if ending == "barrier":
        gatherer.barrier().put(rows(2))
        assert gatherer.work() == [0, 1, Kind.BARRIER]
        assert gatherer.captured() == []
    else:
        gatherer.put(END_FRAME)
        assert gatherer.work() == [0, 1, Kind.END]
    assert gatherer.calls == [[0, 1]]


def test_a_barrier_that_overtakes_captures_what_is_gathered_channel_by_channel() -> None:
    gatherer = Gatherer(senders=3, size=100)
    gatherer.put(rows(0), channel=0).put(rows(10, 11), channel=1).put(rows(1), channel=0).work()
    gatherer.put(rows(2), channel=0)
    gatherer.barrier(1)
    gatherer.barrier(0).barrier(2)
    assert sorted(gatherer.captured()) == [[0, 1, 2], [10, 11]]
    assert gatherer.calls == []
    assert gatherer.work() == [Kind.BARRIER]  # The snapshot is whole: nothing ends the batch early.
    gatherer.now_s += WAIT_S
    assert sorted(gatherer.work()) == [0, 1, 2, 10, 11]


def test_what_was_cut_from_a_frame_is_captured_and_what_was_processed_is_not() -> None:
    gatherer = Gatherer()
    gatherer.put(rows(*range(10)))
    assert gatherer.work() == list(range(8))
    gatherer.barrier()
    assert gatherer.captured() == [[8, 9]]


def test_the_stored_watermark_is_not_ahead_of_what_is_gathered() -> None:
    gatherer = Gatherer()
    gatherer.put(watermark_frame(1), rows(0), watermark_frame(9)).work()
    gatherer.barrier()
    assert gatherer.uploads[0].watermarks.watermark == 1


def test_columns_are_gathered_where_they_are_alike() -> None:
    gatherer = Gatherer(format="columns")
    gatherer.put(columns(0), columns(1, 2), columns(3, name="m"), columns(4, 5, name="m"))
    gatherer.work()
    gatherer.now_s += WAIT_S
    gatherer.work()
    assert gatherer.calls == [
        [{"n": 0}, {"n": 1}, {"n": 2}],
        [{"m": 3}, {"m": 4}, {"m": 5}],
    ]


def test_rows_and_columns_are_in_batches_of_their_own() -> None:
    gatherer = Gatherer()
    gatherer.put(rows({"n": 0}), columns(1), columns(2), rows({"n": 3}), rows({"n": 4}), columns(5))
    gatherer.now_s += WAIT_S
    gatherer.work()
    gatherer.now_s += WAIT_S
    gatherer.work()
    numbers = [[record["n"] for record in call] for call in gatherer.calls]
    assert numbers == [[0], [1, 2], [3, 4], [5]]


def test_dictionaries_that_do_not_fit_into_one_are_in_batches_of_their_own() -> None:
    def words(first: int) -> Frame:
        values = pa.array([f"word {first + place}" for place in range(100)])
        table = pa.record_batch({"n": pa.DictionaryArray.from_arrays(range(100), values)})
        small = table.schema.set(0, pa.field("n", pa.dictionary(pa.int8(), pa.string())))
        return data_frame(Columns(table.cast(small)), CODEC)

    gatherer = Gatherer(size=200)
    gatherer.put(words(0), watermark_frame(5), words(100), watermark_frame(6))
    sent = gatherer.work()
    assert [len(call) for call in gatherer.calls] == [100]
    gatherer.now_s += WAIT_S
    sent += gatherer.work()
    assert [len(call) for call in gatherer.calls] == [100, 100]
    assert [sent.index(mark) for mark in ("w5", "w6")] == [100, 201]


def test_channels_are_debloated_by_what_was_processed_of_each() -> None:
    gatherer = Gatherer(senders=2, debloat="1s", size=2)
    before = [end.window_bytes for end in gatherer.ends]
    for number in range(2000):
        gatherer.put(rows(f"{number:0300}"), channel=0)
        if number % 2:
            gatherer.put(rows(number), channel=1)
        gatherer.now_s += 0.0001
        gatherer.work()
    after = [end.window_bytes for end in gatherer.ends]
    assert after[0] > 16 * before[0]
    assert after[0] > after[1]


def squares(count: int) -> Counter[int]:
    return Counter(number * number for number in range(count))


def squaring(sink: rt.Sink, parallelism: int, count: int = 200) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism)
    numbers = env.source(rt.SequenceSource(count, splits=2), uid="numbers", parallelism=2)
    batches = numbers.rebalance().map_batches(
        lambda records: [record * record for record in records], size=7, wait="2h", uid="squares"
    )
    batches.sink(sink, uid="out")
    return env


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "at_least_once"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_gathered_records_are_processed_once_after_a_restore(
    tmp_path: Path, mode: str, parallelism: int
) -> None:
    first, second = rt.CollectSink(), rt.CollectSink()
    job = SteppedJob(squaring(first, 2), tmp_path, mode=mode)
    job.work(9)
    job.checkpoint(working=True)
    restored = SteppedJob(
        squaring(second, parallelism), tmp_path, mode=mode, restore=RestoreOptions("latest")
    )
    restored.finish()
    assert not squares(200) - Counter(second.rows)
    assert mode == "at_least_once" or Counter(second.rows) == squares(200)


@pytest.mark.parametrize(
    "runner", ["inline", pytest.param("processes", marks=pytest.mark.processes)]
)
def test_a_slow_function_gets_the_batches_that_were_asked_for(runner: Any) -> None:
    def infer(records: list[int]) -> list[int]:
        import time

        time.sleep(0.02)
        return [len(records)] * len(records)

    env, sink = rt.Environment(), rt.CollectSink()
    env.source(rt.SequenceSource(640)).map_batches(infer, size=64, wait="10s").sink(sink)
    env.execute(runner=runner)
    assert Counter(sink.rows) == {64: 640}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wait": "1s"}, "wait has no effect without size"),
        ({"size": 0}, "size must be a whole number above 0"),
        ({"size": 1.5}, "size must be a whole number above 0"),
        ({"size": 1, "wait": "1s"}, "wait has no effect with size=1"),
        ({"size": 1 << 21}, "size is at most"),
        ({"size": 2, "wait": "soon"}, "wait: cannot read 'soon'"),
        ({"size": 2, "wait": -1}, "wait"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    numbers = rt.Environment().source(rt.SequenceSource(1))
    with pytest.raises(ConfigurationError, match=message):
        numbers.map_batches(list, **options)


def test_the_plan_says_that_it_gathers() -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource(1)).map_batches(list, size=9).sink(rt.DiscardSink())
    assert "gathers batches of 9 records" in str(env.plan())
