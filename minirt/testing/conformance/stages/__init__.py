"""The kinds of stages of random jobs: one file each, or one for a few that are alike, and a line here.

`register` adds one for an operator of another package; from then on the kit draws it as often as its
`weight` says. As the draw depends on what is registered, so do the jobs of seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.window import WindowAllSpec
from minirt.operators.window_rows import RowWindowAllSpec
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.aggregate import AggregateStage
from minirt.testing.conformance.stages.as_of import AsOfStage
from minirt.testing.conformance.stages.asked import AskStage, KeyedAskStage
from minirt.testing.conformance.stages.base import StageKind
from minirt.testing.conformance.stages.clock import ClockStage
from minirt.testing.conformance.stages.columns import ColumnsStage
from minirt.testing.conformance.stages.count import CountStage, JoinStage
from minirt.testing.conformance.stages.distinct import DistinctStage
from minirt.testing.conformance.stages.elements import (
    BatchesStage,
    FilterStage,
    FlatStage,
    MapStage,
    SplitStage,
)
from minirt.testing.conformance.stages.expiring import ExpiringStage
from minirt.testing.conformance.stages.joined import IntervalStage
from minirt.testing.conformance.stages.joined_for_good import TtlJoinStage
from minirt.testing.conformance.stages.listed import ListedStage
from minirt.testing.conformance.stages.ranked import TopNStage
from minirt.testing.conformance.stages.reduce import ReduceStage
from minirt.testing.conformance.stages.rules import RulesStage
from minirt.testing.conformance.stages.source import SourceStage
from minirt.testing.conformance.stages.timers import TimersStage
from minirt.testing.conformance.stages.two_streams import (
    FlatPairStage,
    PairStage,
    TwiceStage,
    UnionStage,
)
from minirt.testing.conformance.stages.window import WindowStage
from minirt.testing.conformance.stages.windows import WindowsStage

SOURCE = SourceStage()

STAGES: dict[str, StageKind] = {
    kind.name: kind
    for kind in (
        SOURCE,
        MapStage(),
        FilterStage(),
        FlatStage(),
        BatchesStage(),
        SplitStage(),
        ColumnsStage(),
        CountStage(),
        TimersStage(),
        ClockStage(),
        UnionStage(),
        TwiceStage(),
        PairStage(),
        JoinStage(),
        FlatPairStage(),
        ReduceStage(),
        AggregateStage(),
        WindowStage(),
        WindowsStage(),
        ExpiringStage(),
        IntervalStage(),
        AskStage(),
        KeyedAskStage(),
        DistinctStage(),
        TopNStage(),
        TtlJoinStage(),
        AsOfStage(),
        RulesStage(),
        ListedStage(),
    )
}

NOT_DRAWN: Mapping[type[OperatorSpec], str] = {
    WindowAllSpec: "it runs as WindowSpec does, in one subtask",
    RowWindowAllSpec: "it runs as RowWindowSpec does, in one subtask",
}
"""Operators of minirt that no stage adds, and why."""


def kind_of(stage: Stage) -> StageKind:
    return STAGES[stage.kind]


def register(kind: StageKind) -> StageKind:
    """Have a kind of stage drawn into random jobs of this process; returns it."""
    if STAGES.get(kind.name, kind) is not kind:
        raise ValueError(f"there is a kind of stage called {kind.name!r} already")
    STAGES[kind.name] = kind
    return kind


@contextmanager
def registered(kind: StageKind) -> Iterator[StageKind]:
    """As `register`, for as long as the block lasts."""
    register(kind)
    try:
        yield kind
    finally:
        del STAGES[kind.name]
