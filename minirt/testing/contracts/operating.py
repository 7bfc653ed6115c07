"""Drives an operator in its subtasks as the runtime does, without one: for the contract of operators."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from minirt import by_value
from minirt.config import Options
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.copies import copied
from minirt.data.custody import custody_of
from minirt.data.keys import key_hash
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec, StateDealing
from minirt.operators.common.base import OperatorContext, Step, Wait
from minirt.protocol.key_groups import group_range, subtask_of_group
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.sections import Section, section_bytes
from minirt.testing.event_loop import JumpingLoop

GROUPS = 16
NOW = 1_700_000_000.0
MAIN = ""
"""What stands for the tag where a result is no side output's."""


@dataclass(frozen=True)
class Given:
    """Records of one input, with their event times if they have any."""

    records: Sequence[Any]
    times: Sequence[int] | None = None
    input: int = 0


@dataclass(frozen=True)
class Advance:
    """Event time has advanced, at every input."""

    watermark: int


Event = Given | Advance
Result = tuple[str, Any, int | None]
"""The tag of the output, the record and its event time."""


@dataclass(frozen=True)
class Stored:
    """The snapshot of one subtask of `parallelism`, and the older ones that it builds on, as stored."""

    subtask: int
    parallelism: int
    path: str
    sections: Mapping[str, bytes]
    older: Sequence[Mapping[str, bytes]]


class Subtasks:
    """An operator at some parallelism. What is emitted is used up by whoever got it."""

    def __init__(
        self,
        spec: OperatorSpec,
        keys: tuple[KeySelector | None, ...],
        parallelism: int = 1,
        *,
        restore: Sequence[Stored] = (),
        spoil: bool = True,
        repeats: bool = False,
        emit: Callable[[str, Batch], None] | None = None,
    ) -> None:
        self.results: list[Result] = []
        self._keys = keys
        self._without_key = spec.without_key
        self._spoil = spoil
        self._repeats = repeats
        self._by_clock = spec.by_clock
        self._emit = emit or self._keep
        self._turn = 0
        self._event_loop = JumpingLoop()
        self._stored: list[dict[str, Mapping[str, bytes]]] = [{} for _ in range(parallelism)]
        pickled = by_value.dumps(spec)
        self.operators = [
            pickle.loads(pickled).build(self._context(subtask, parallelism))
            for subtask in range(parallelism)
        ]
        if spec.state is StateDealing.BY_KEY_GROUP:
            for subtask in range(parallelism):
                self._restore(subtask, restore)
        elif spec.state is StateDealing.BY_OPERATOR:
            for stored in restore:
                if stored.parallelism == parallelism:
                    for sections in (*stored.older, stored.sections):
                        self.operators[stored.subtask].restore(sections, exact=True)
        elif spec.state is StateDealing.TO_ALL:
            for operator in self.operators:
                for stored in restore:
                    for sections in (*stored.older, stored.sections):
                        operator.restore(sections, exact=False)
        for operator in self.operators:
            operator.open()

    def feed(self, event: Event, *, columns: bool = False) -> None:
        """What operators have sent off because of the event before is answered now."""
        self._take_mail()
        if isinstance(event, Advance):
            for operator in self.operators:
                _run(operator.on_watermark(event.watermark))
            return
        for subtask, part in enumerate(self._dealt(event)):
            if part.records:
                batch = as_columns(part) if columns else as_rows(part)
                self.operators[subtask].process(batch, event.input)

    def end(self) -> list[Result]:
        """All input has ended; returns all results."""
        self.feed(Advance(MAX_WATERMARK))
        for operator in self.operators:
            for step in operator.on_end():
                if step is Wait.FOR_MAIL:
                    self._take_mail()
            operator.close()
        self._event_loop.finish()
        return self.results

    def _take_mail(self) -> None:
        """Let all coroutines run to their end, and operators take what they have left."""
        self._event_loop.finish()
        while addressed := [each for each in self.operators if each.ctx.mailbox]:
            for operator in addressed:
                _run(operator.on_mail() or ())
            self._event_loop.finish()

    def begin_snapshot(self) -> Callable[[str], list[Stored]]:
        """What stores the state as of now, in files of a name; state may change before it is called."""
        taken = [(op.snapshot(), op.builds_on()) for op in self.operators]

        def store(name: str) -> list[Stored]:
            return [self._store(i, name, *parts) for i, parts in enumerate(taken)]

        return store

    def snapshot(self, name: str) -> list[Stored]:
        """A snapshot that is stored at once, and that later ones may build on."""
        stored = self.begin_snapshot()(name)
        for operator, each in zip(self.operators, stored, strict=True):
            operator.on_stored(each.path)
        return stored

    def _store(
        self,
        subtask: int,
        name: str,
        sections: Mapping[str, Section],
        builds_on: Mapping[str, Iterable[str]],
    ) -> Stored:
        files, path = self._stored[subtask], f"{name}/{subtask}"
        held = {section: section_bytes(data) for section, data in sections.items()}
        needed = {section: set(paths) for section, paths in builds_on.items()}
        older = [
            {section: data for section, data in file.items() if old in needed.get(section, ())}
            for old, file in files.items()
        ]
        files[path] = held
        parallelism = len(self.operators)
        return Stored(subtask, parallelism, path, held, [part for part in older if part])

    def _restore(self, subtask: int, restore: Sequence[Stored]) -> None:
        operator, parallelism = self.operators[subtask], len(self.operators)
        mine = group_range(subtask, parallelism, GROUPS)
        for stored in restore:
            theirs = group_range(stored.subtask, stored.parallelism, GROUPS)
            if not set(mine) & set(theirs):
                continue
            for sections in (*stored.older, stored.sections):
                if sections:
                    operator.restore(sections, exact=mine == theirs)
            if mine == theirs and stored.sections and not stored.older:
                self._stored[subtask][stored.path] = stored.sections
                operator.on_stored(stored.path)

    def _dealt(self, given: Given) -> list[Given]:
        """The records by subtask: by key group, or in turn; all to each where others have keys."""
        count = len(self.operators)
        if given.input in self._without_key:
            return [replace(given, records=copied([*given.records])) for _ in range(count)]
        places: list[list[int]] = [[] for _ in range(count)]
        for place, record in enumerate(given.records):
            places[self._subtask_of(record, given.input)].append(place)
        times = given.times
        return [
            Given(
                [copied(given.records[place]) for place in own],
                None if times is None else [times[place] for place in own],
                given.input,
            )
            for own in places
        ]

    def _subtask_of(self, record: Any, input: int) -> int:
        count = len(self.operators)
        if count == 1:
            return 0
        key = self._keys[input] if self._keys else None
        if key is not None:
            group = key_hash(key.on_rows()(record)) % GROUPS
            return subtask_of_group(group, count, GROUPS)
        self._turn += 1
        return self._turn % count

    def _context(self, subtask: int, parallelism: int) -> OperatorContext:
        return OperatorContext(
            label="operator",
            uid="operator",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=GROUPS,
            generation=1,
            now=lambda: NOW,
            allow_pickle=False,
            emit=lambda batch: self._emit(MAIN, batch),
            side=lambda tag: lambda batch: self._emit(tag, batch),
            monotonic=lambda: NOW,
            keys=tuple(key for key in self._keys if key is not None),
            custody=custody_of(Options(), "operator", repeats=self._repeats),
            run_async=self._event_loop.begin,
            repeats=self._repeats,
            read_clock=(lambda: int(NOW * 1000)) if self._by_clock else None,
        )

    def _keep(self, tag: str, batch: Batch) -> None:
        rows = batch.rows()
        times = [None] * len(rows) if rows.timestamps is None else [*rows.timestamps]
        for record, time in zip(rows.records, times, strict=True):
            self.results.append((tag, copied(record), time))
            if self._spoil:
                use_up(record)


def as_rows(given: Given) -> Rows:
    return Rows([*given.records], None if given.times is None else [*given.times])


def as_columns(given: Given) -> Columns:
    times = None if given.times is None else pa.array(given.times, pa.int64()).to_numpy()
    return Columns(pa.RecordBatch.from_pylist([*given.records]), times)


def use_up(record: Any) -> None:
    """Leave nothing of a record that can be changed."""
    parts = record.values() if isinstance(record, dict) else record
    if isinstance(record, dict | list | set | tuple):
        for part in [*parts]:
            use_up(part)
    if isinstance(record, dict | list | set | bytearray):
        record.clear()


def _run(steps: Iterable[Step]) -> None:
    for _ in steps:
        pass
