"""Which sources wait for each other, and what is refused of it before a job starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import minirt as rt
from minirt.graph.drift import drift_groups
from minirt.graph.planner import build_execution_graph

RECORDS = [{"t": 1}]


def marks(**given: Any) -> rt.Watermarks:
    return rt.Watermarks.bounded("1s", timestamp="t", **given)


def graph(*sources: tuple[rt.Source, rt.Watermarks], parallelism: int = 1) -> Any:
    env = rt.Environment(parallelism=parallelism)
    for number, (source, watermarks) in enumerate(sources):
        read = env.source(source, uid=f"s{number}", watermarks=watermarks)
        read.sink(rt.DiscardSink(), uid=f"out{number}")
    return build_execution_graph(env.graph())


def bounded() -> rt.Source:
    return rt.CollectionSource(RECORDS)


def endless() -> rt.Source:
    source = bounded()
    source.bounded = False
    return source


def test_sources_that_name_no_group_are_one() -> None:
    drifting = marks(max_drift="5s")
    planned = graph((bounded(), drifting), (bounded(), drifting), (bounded(), marks()))
    [group] = drift_groups(planned)
    assert group.max_drift_ms == 5000
    sources = [vertex.operators[0].uid for vertex in planned.vertices if not vertex.id > 1]
    assert group.sources == frozenset(sources)


def test_groups_have_names() -> None:
    pair = [marks(max_drift=drift, drift_group=name) for drift, name in ((1, "a"), (2, "b"))]
    planned = graph(*((bounded(), pair[place % 2]) for place in range(4)), parallelism=2)
    groups = {group.name: group for group in drift_groups(planned)}
    assert [groups[name].max_drift_ms for name in "ab"] == [1000, 2000]
    assert [len(groups[name].sources) for name in "ab"] == [2, 2]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: marks(max_drift=0), "max_drift must be positive"),
        (lambda: marks(max_drift=-1), "max_drift must be finite and not negative"),
        (lambda: marks(max_drift="soon"), "max_drift"),
        (lambda: marks(drift_group="a"), "drift_group='a'.* no effect without max_drift"),
        (lambda: marks(max_drift=1, drift_group=""), "drift_group is a name"),
        (lambda: rt.Watermarks("t", 0, max_drift_ms=1.5), "max_drift_ms is a number of milli"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_drift_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=said):
        make()


def test_a_source_that_has_nobody_to_wait_for_is_refused() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"s0.*max_drift has no effect"):
        graph((bounded(), marks(max_drift=1)), (bounded(), marks()))
    graph((bounded(), marks(max_drift=1)), parallelism=2)


def test_splits_that_are_read_side_by_side_wait_for_each_other() -> None:
    graph((endless(), marks(max_drift=1, idle_timeout=1)))


def test_one_group_has_one_drift() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"s1\): max_drift is 2 s here and 1 s in .*s0"):
        graph((bounded(), marks(max_drift=1)), (bounded(), marks(max_drift=2)))


def test_a_source_that_may_fall_silent_must_turn_idle() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"s1.*idle_timeout"):
        graph((bounded(), marks(max_drift=1)), (endless(), marks(max_drift=1)))
