"""`process` without keys: a user's process function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.data.batch import Batch, Rows
from minirt.errors import ConfigurationError
from minirt.functions import Process
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, class_name
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.checks import check_instance, check_methods
from minirt.operators.common.clock_use import asks_for_clock
from minirt.operators.common.keyed import named, only
from minirt.operators.common.results import (
    ContextOperator,
    Produced,
    emit_results,
    rows_with_times,
)
from minirt.state.binding import bind_states, check_states, declarations
from minirt.state.handles import ListState
from minirt.state.keyed import KeyedState
from minirt.state.kinds_of_state import KindsOfState
from minirt.state.sections import Section
from minirt.state.stored import STATE


@dataclass(frozen=True, slots=True)
class ProcessSpec(OperatorSpec):
    kind: ClassVar = "process"
    inputs: ClassVar = 1
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    process: Process

    @property
    def state(self) -> StateDealing:  # type: ignore[override]
        lists = _lists(self.process)
        if any(each.redistribution == "union" for each in lists.values()):
            return StateDealing.TO_ALL
        return StateDealing.BY_OPERATOR if lists else StateDealing.NONE

    @property
    def by_clock(self) -> bool:
        return asks_for_clock(self.process)

    @property
    def subject(self) -> str | None:
        return class_name(self.process)

    @property
    def owned(self) -> object | None:
        return self.process

    def check(self, site: Site) -> None:
        check_instance(self.process, Process, site.label)
        check_methods(site.label, self.process, "process")
        _check_states(site.label, self.process)

    def side_output(self, tag: str, label: str) -> Form:
        return Form.ROWS

    def build(self, ctx: OperatorContext) -> Operator:
        kind = ListProcessOperator if _lists(self.process) else ProcessOperator
        return kind(ctx, self.process)


def _lists(process: Process) -> dict[str, ListState]:
    """The lists that a process declares, by the names that they are stored under."""
    declared = declarations(type(process)).items()
    return {h._name or a: h for a, h in declared if isinstance(h, ListState)}


def _check_states(label: str, process: Process) -> None:
    name = type(process).__name__
    try:
        check_states(process, keyed=False)
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: {error}") from error
    for attribute, handle in declarations(type(process)).items():
        if not isinstance(handle, ListState):
            raise ConfigurationError(
                f"{label}: {name} declares state {attribute!r}, but a Process has lists only, which can be "
                "dealt to another number of subtasks: make it a KeyedProcess, behind key_by"
            )
        if handle.ttl is not None:
            raise ConfigurationError(
                f"{label}: a ttl needs keys, which {name} has not; leave it out of {attribute!r}"
            )


class ProcessOperator(ContextOperator):
    """Runs a user's Process."""

    def __init__(self, ctx: OperatorContext, process: Process) -> None:
        super().__init__(ctx)
        self._process = process

    def open(self) -> None:
        self._process.open()

    def close(self) -> None:
        self._process.close()

    def process(self, batch: Batch, input_index: int) -> None:
        with Calling(self.ctx.label):
            emit_results(self._results(batch.rows()), self.ctx)

    def _results(self, rows: Rows) -> Iterator[Produced]:
        process = self._process.process
        for record, time in rows_with_times(rows):
            self.timestamp = time
            yield record, process(record, self), time


class ListProcessOperator(ProcessOperator):
    """Runs a Process that declares lists. They are kept as the state of one key, None."""

    def __init__(self, ctx: OperatorContext, process: Process) -> None:
        super().__init__(ctx, process)
        self._state = self._own_state()
        self._lists = _lists(process)
        self._kinds = KindsOfState.of_process(ctx.label, process, keyed=False)
        self._restored: dict[str, list[Any]] = {name: [] for name in self._lists}
        self._passed = dict.fromkeys(self._lists, 0)
        """How many elements of the snapshots so far there were to be dealt."""

    def open(self) -> None:
        for name, elements in self._restored.items():
            if elements:
                self._state.table(name)[None] = elements
        bind_states(self._process, self._state, self.ctx.custody, keyed=False)
        super().open()

    def process(self, batch: Batch, input_index: int) -> None:
        self._state.change((None,))
        super().process(batch, input_index)

    def snapshot(self) -> Mapping[str, Section]:
        return self._kinds.beside(named(STATE, self._state.snapshot()))

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self._kinds.check(sections)
        old, ctx = self._own_state(), self.ctx
        old.restore(only(STATE, sections), filter_groups=False)
        for name, handle in self._lists.items():
            elements: list[Any] = old.table(name).get(None, [])
            if not exact and handle.redistribution != "union":
                # Dealt in turn through the snapshots of all old subtasks.
                first = (ctx.subtask - self._passed[name]) % ctx.parallelism
                self._passed[name] += len(elements)
                elements = elements[first :: ctx.parallelism]
            self._restored[name] += elements

    def _own_state(self) -> KeyedState:
        return KeyedState(1, range(1), allow_pickle=self.ctx.allow_pickle)
