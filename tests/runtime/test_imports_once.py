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


def counted(stream: Any) -> Any:
    window = rt.CountWindow(1, 1)
    return stream.key_by("there").window(window).reduce(lambda a, b: a, uid="w")


@pytest.mark.parametrize(
    ("behind", "imported"),
    [
        (lambda stream: stream, False),
        (lambda stream: stream.with_column("x", pc.scalar(1)), True),
        (counted, True),
    ],
    ids=["rows", "columns", "windows of rows"],
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
