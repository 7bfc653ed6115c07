"""Records with and without timestamps in one stream, as timers make them without event time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import minirt as rt


class Echo(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        ctx.set_processing_timer(ctx.processing_time + 1)
        time.sleep(0.002)
        yield ("record", record)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield ("timer", ctx.key)


def test_timers_between_records_without_event_time_share_their_buffer() -> None:
    env, sink = rt.Environment(parallelism=2), rt.CollectSink()
    echoes = env.source(rt.SequenceSource(60), uid="n").key_by(lambda n: n % 4).process(Echo())
    echoes.rebalance().map(lambda record: record).sink(sink)
    env.execute("mixed", runner="inline", options=rt.Options(buffer_timeout="1s"))
    assert sorted(record for kind, record in sink.rows if kind == "record") == list(range(60))
    assert {record for kind, record in sink.rows if kind == "timer"} == {0, 1, 2, 3}
