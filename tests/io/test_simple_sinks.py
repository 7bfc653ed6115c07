"""Print, collect, discard."""

from __future__ import annotations

import datetime as dt
import io
import pickle
import sys
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from minirt.data.batch import Columns, Rows
from minirt.errors import ConfigurationError
from minirt.io import CollectSink, DiscardSink, PrintSink, Sink, SinkContext, SinkIdentity
from minirt.testing.contracts import SinkContract, row

CONTEXT = SinkContext(SinkIdentity("job", "out"), "out", 0, 1, 1)


class TestCollectSink(SinkContract):
    """The rows are in the memory of the coordinator, so that a crash of it is none of its cases."""

    shows_again = False

    @pytest.fixture(autouse=True)
    def _sink(self) -> None:
        self.sink = CollectSink()

    def new_sink(self) -> Sink:
        return self.sink

    def visible(self, sink: Sink) -> list[Any]:
        return self.sink.rows

    def pending(self) -> list[str]:
        return []

    def test_rows_come_in_the_order_of_checkpoints_and_subtasks(self) -> None:
        handles = [
            handle
            for checkpoint, subtask in ((2, 0), (1, 1), (1, 0))
            for handle in self.prepared(
                self.writer(self.sink, subtask), checkpoint, row(10 * checkpoint + subtask)
            )
        ]
        self.sink.commit(handles)
        assert self.sink.rows == [row(10), row(11), row(20)]

    def test_two_operators_may_share_one_sink(self) -> None:
        for operator in ("a", "b"):
            writer = self.sink.open_writer(
                SinkContext(SinkIdentity("job", operator), "out", 0, 1, 1)
            )
            self.sink.commit(self.prepared(writer, 1, row(1)))
        assert self.sink.rows == [row(1), row(1)]

    @pytest.mark.parametrize("record", [(1, "a"), {"at": dt.datetime(2024, 1, 1)}, {1, 2}])
    def test_rows_have_their_types_also_from_a_checkpoint(self, record: Any) -> None:
        handles = self.prepared(self.writer(self.sink), 1, record)
        self.sink.commit(msgpack.unpackb(msgpack.packb(handles)))
        assert self.sink.rows == [record]

    def test_rows_that_nothing_can_store_are_collected_without_checkpoints(self) -> None:
        record, writer = object(), self.writer(self.sink)
        writer.write(Rows([record]))
        self.sink.commit(writer.prepare(1).handles)
        assert self.sink.rows == [record]

    def test_a_copy_carries_no_rows_to_the_workers(self) -> None:
        self.sink.commit(self.prepared(self.writer(self.sink), 1, row(1)))
        assert pickle.loads(pickle.dumps(self.sink)).rows == []


def test_print_shows_each_record_after_the_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    writer = PrintSink("> ").open_writer(CONTEXT)
    writer.write(Rows([1, {"a": 2}]))
    writer.write(Columns(pa.RecordBatch.from_pylist([{"a": 3}])))
    assert capsys.readouterr().out == "> 1\n> {'a': 2}\n> {'a': 3}\n"


def test_print_stops_at_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    writer = PrintSink(limit=3).open_writer(CONTEXT)
    writer.write(Rows([1, 2]))
    writer.write(Rows([3, 4]))
    writer.write(Rows([5]))
    assert capsys.readouterr().out == "1\n2\n3\n"
    with pytest.raises(ConfigurationError, match="limit"):
        PrintSink(limit=0)


def test_discard_takes_anything_and_prepares_nothing() -> None:
    writer = DiscardSink().open_writer(CONTEXT)
    writer.write(Rows([object()]))
    assert writer.prepare(1).handles == []


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", "é x\\ud800y"), ("ascii", "\\xe9 x\\ud800y")]
)
def test_characters_that_the_output_lacks_are_printed_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding, newline="\n"))
    writer = PrintSink("> ").open_writer(CONTEXT)
    writer.write(Rows(["plain", "é x\ud800y"]))
    assert raw.getvalue().decode(encoding) == f"> plain\n> {shown}\n"
