"""`window` and `window_all`: aggregates of columns in windows; `minirt.operators.windows` runs them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.operators.common.aggregation import (
    aggregated_schema,
    check_aggregates,
    inputs_of,
    repeatable,
)
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.windows import frame_of
from minirt.operators.windows.outlet import LATE_TAG, PANE, WINDOW_TIME, Task
from minirt.windows import AT_THE_END, AfterTime, Emission, GlobalWindow, Window


@dataclass(frozen=True, slots=True)
class WindowSpec(OperatorSpec):
    """Computes aggregates of each key, whose parts are columns, and window."""

    kind: ClassVar = "window"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.COLUMNS

    aggregates: tuple[Aggregate, ...]
    window: Window
    emission: Emission = AT_THE_END

    @property
    def keyed(self) -> bool:
        return True

    @property
    def task(self) -> Task:
        return Task(self.window, self.aggregates, self.emission, self.keyed)

    @property
    def repeats_batches(self) -> bool:
        again = gives_again(self.window, self.emission)
        return again and all(each.repeats for each in self.aggregates)

    @property
    def by_clock(self) -> bool:
        return waits_for_clock(self.window)

    @property
    def needs_event_time(self) -> bool:
        return self.window.in_event_time

    @property
    def late_after_ms(self) -> int | None:
        return self.window.allowed_lateness_ms if self.window.in_event_time else None

    @property
    def details(self) -> str:
        return emission_details(self.window, self.emission)

    def check(self, site: Site) -> None:
        taken = [*self.window.bounds, *([PANE] if self.task.marks_panes else [])]
        check_aggregates(self.aggregates, site, *taken, keyed=self.keyed)
        check_emission(self.window, self.emission, site.label)

    def side_output(self, tag: str, label: str) -> Form:
        if tag != LATE_TAG:
            raise ConfigurationError(
                f"{label}: windows have one side output, {LATE_TAG!r}, and no {tag!r}"
            )
        return Form.COLUMNS

    def output_schema(self, site: Site) -> pa.Schema | None:
        """The results, with what tells the window behind the key."""
        results = aggregated_schema(self.aggregates, site, keyed=self.keyed)
        if results is None:
            return None
        place = len(results) - len(self.aggregates)
        if self.task.marks_panes:
            results = results.insert(place, pa.field(PANE, pa.string()))
        for name in reversed(self.window.bounds):
            results = results.insert(place, pa.field(name, WINDOW_TIME))
        return results

    def columns_read(self, key: KeySelector, tags: Set[str]) -> Set[str] | None:
        """Late records leave whole, if anybody takes them."""
        return None if LATE_TAG in tags else inputs_of(key, self.aggregates)

    def build(self, ctx: OperatorContext) -> Operator:
        aggregates = repeatable(self.aggregates, ctx)
        return frame_of(self.window)(ctx, Task(self.window, aggregates, self.emission, self.keyed))


class WindowAllSpec(WindowSpec):
    """As `WindowSpec`, of all records of a stream without keys: one subtask sees them all."""

    kind: ClassVar = "window_all"
    state: ClassVar = StateDealing.BY_OPERATOR

    @property
    def keyed(self) -> bool:
        return False


def emission_details(window: Window, emission: Emission) -> str:
    """What the plan says of windows, and of when they give out results."""
    match emission:
        case Emission(when="updates"):
            return f", {window.words}, emits updates"
        case Emission(when="interval", interval_s=interval, clock=clock):
            return f", {window.words}, emits every {interval:g} s of {clock} time"
    return f", {window.words}"


def gives_again(window: Window, emission: Emission) -> bool:
    """Whether the same batches, with event time between them, bring the same results in the same order.

    Early results by an interval do not: nobody stores which ones have changed since the last ones. Nor do
    those that a trigger gives out whenever so much event time has passed: a snapshot in the middle of that
    does not say so.
    """
    by_turns = isinstance(window, GlobalWindow) and window.in_event_time
    return emission.when != "interval" and not by_turns


def waits_for_clock(window: Window) -> bool:
    """Whether the clock says when results are given out, as far as `gives_again` holds."""
    return (
        isinstance(window, GlobalWindow)
        and isinstance(window.trigger, AfterTime)
        and window.trigger.clock == "processing"
    )


def check_emission(window: Window, emission: Emission, label: str) -> None:
    """Raise ConfigurationError for early results of windows that have none."""
    if emission.early and not window.has_early_results:
        raise ConfigurationError(f"{label}: {window.words} have no early results; leave emit out")
