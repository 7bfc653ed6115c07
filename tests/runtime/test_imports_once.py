"""What all workers of a job need is imported once, by their template."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.compute as pc
import pytest

import minirt as rt

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("cold_starts")]


class Looks(rt.Process):
    def open(self) -> None:
        self.there = "pandas" in sys.modules

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        yield {"there": self.there}


class ReadsArrays(rt.CollectionSource[int]):
    in_arrays = True


class WritesArrays(rt.DiscardSink):
    in_arrays = True


def counted(stream: Any) -> Any:
    window = rt.CountWindow(1, 1)
    return stream.key_by("there").window(window).reduce(lambda a, b: a, uid="w")


def written(stream: Any, sink: rt.Sink) -> Any:
    stream.sink(sink)
    return stream


def test_pandas_is_imported_before_a_source_reads_that_makes_arrays() -> None:
    pytest.importorskip("pandas")
    env, out = rt.Environment("j"), rt.CollectSink()
    env.source(ReadsArrays([1])).process(Looks()).sink(out)
    env.execute()
    assert out.rows == [{"there": True}]


@pytest.mark.parametrize(
    ("behind", "imported"),
    [
        (lambda stream: stream, False),
        (lambda stream: stream.with_column("x", pc.scalar(1)), True),
        (counted, True),
        (lambda stream: written(stream, WritesArrays()), True),
        (lambda stream: written(stream, rt.DiscardSink()), False),
    ],
    ids=["rows", "columns", "windows of rows", "a sink in arrays", "another sink"],
)
def test_pandas_is_imported_before_workers_are_forked(
    behind: Callable[[Any], Any], imported: bool
) -> None:
    """Arrow imports it when it makes an array: a second of each worker, in the middle of its records."""
    pytest.importorskip("pandas")
    env, out = rt.Environment("j"), rt.CollectSink()
    behind(env.source(rt.CollectionSource([1])).process(Looks())).sink(out)
    env.execute()
    assert out.rows[0]["there"] is imported
