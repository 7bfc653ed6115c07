"""What the kit knows of a kind of stage: how it is drawn and built, and what must come of it.

A record is `(path, time, notes)`: the path says where it came from and which way it took; notes are what
stateful operators found when it passed. Records are compared as `(path, time)`: in which order they pass
stateful operators is left to chance, and so are their notes.

What a kind expects is computed in plain Python. It shares no code with the operator that it adds.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.edges import EDGES, EdgeKind
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.stored import StoredCheckpoint

Path = tuple[Any, ...]
Stamped = tuple[Path, int]
Record = Sequence[Any]
"""A path, a time and notes: a tuple, or a list by one who scribbles on it."""
Records = Counter[Stamped]
Note = tuple[Any, ...]
"""The kind of the stage that wrote it, its uid, and what it found."""

CUSTOM_KEYS = 7
"""How many keys partitioners tell apart; those of columns go by the key of their stage."""
BUCKET_MS = 16
LAID = "-laid"
"""Behind the uid of an operator on columns: the one that lays them out for it."""
MORE = "-more"
"""Behind the uid of an operator: those in front of each input of it that change nothing."""
BACK = "-back"
"""Behind the uid of an operator: the one that makes records of what it gives out."""


def key_of(path: Path, keys: int) -> int:
    return sum(part for part in path if isinstance(part, int)) % keys


def key_function(keys: int) -> Callable[[Record], int]:
    return lambda record: key_of(record[0], keys)


def span_end(time: int) -> int:
    """The last millisecond of the span of event time that `time` lies in."""
    return time // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1


def renamed(records: Records, rename: Callable[[Path], Path]) -> Records:
    return Counter({(rename(path), time): n for (path, time), n in records.items()})


def per_key(stage: Stage, records: Records) -> Counter[int]:
    """How many of the records each key has."""
    counts: Counter[int] = Counter()
    for (path, _), n in records.items():
        counts[key_of(path, stage.keys)] += n
    return counts


def some(records: Counter[Any]) -> str:
    """A few of them, for a message."""
    return f"{records.total()} such as {list(records.items())[:3]}" if records else "none"


def pick_up(fields: Mapping[str, Any]) -> Record:
    """The record that was laid out, with a note in its path of the operator that it came through."""
    path, time, notes = ast.literal_eval(fields["record"])
    return ((*path, fields["via"]) if "via" in fields else path, time, notes)


@dataclass(frozen=True)
class Site:
    """Where a stage stands in one form of a job. `streams` are those that lead into it."""

    stage: Stage
    number: int
    form: int
    plan: Plan
    streams: Sequence[rt.Stream]

    @property
    def uid(self) -> str:
        return f"op{self.number}"

    @property
    def width(self) -> int:
        return self.stage.parallelism[self.form]

    @property
    def edge(self) -> str:
        return self.stage.edit(self.form).edge

    @property
    def senders(self) -> list[Stage]:
        return [self.plan.stages[i] for i in self.stage.inputs]

    @property
    def settings(self) -> dict[str, Any]:
        """What its operator is given."""
        own = {"parallelism": self.width, "chain": self.stage.edit(self.form).chain}
        return {**own, "uid": self.uid if self.stage.named else None}

    @property
    def dealt(self) -> list[rt.Stream]:
        """The streams, dealt as its edge says."""
        pairs = zip(self.streams, self.senders, strict=True)
        return [self._deal(stream, sender) for stream, sender in pairs]

    @property
    def keyed(self) -> list[rt.KeyedStream]:
        """The streams by the key of the stage."""
        return [stream.key_by(key_function(self.stage.keys)) for stream in self.streams]

    def dealt_by_column(self, stream: rt.Stream, column: str) -> rt.Stream:
        """A stream of columns dealt as the edge says, by the key in a column if it looks at keys."""
        return EDGES[self.edge].deal(stream, column, *self._widths(self.senders[0]))

    def _deal(self, stream: rt.Stream, sender: Stage) -> rt.Stream:
        return EDGES[self.edge].deal(stream, key_function(CUSTOM_KEYS), *self._widths(sender))

    def _widths(self, sender: Stage) -> tuple[int, int]:
        return sender.parallelism[self.form], self.width


@dataclass
class Verdict:
    """What was wrong with the committed output."""

    lost: int = 0
    duplicated: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Output:
    """What a job has put out of the notes of a stage, and what the stage must have consumed."""

    stage: Stage
    uid: str
    inputs: Sequence[Records]
    """What it must have consumed at each input."""
    notes: Sequence[Note]
    """Those of all sinks: a note that took several ways is there several times."""
    exactly_once: bool

    @property
    def consumed(self) -> Records:
        """What it must have consumed at all inputs together."""
        return sum(self.inputs, Records())


class CutOf(ABC):
    """What a completed checkpoint holds of one stage."""

    stage: Stage
    uid: str
    plan: Plan
    stored: StoredCheckpoint
    consumed: Sequence[Records]
    """At each input: what is not in flight in front of it."""
    waiting: Sequence[Records]
    """At each input: what is."""
    exactly_once: bool

    @abstractmethod
    def compare(self, what: str, has: Counter[Any], wanted: Counter[Any]) -> None:
        """Report what is lacking, and what is too many unless records may be repeated."""

    @abstractmethod
    def put_out(self) -> Iterable[Record]:
        """What is at the stage's sink or on its way there."""


class StageKind(ABC):
    """One kind of operator, or of several that belong together, in random jobs. Has no state."""

    name: ClassVar[str]
    """What plans call it; also the first part of its notes."""
    words: ClassVar[str]
    """What a counterexample calls it."""
    weight: ClassVar[int] = 1
    """How often it is drawn, compared with others."""
    streams: ClassVar[int] = 1
    """How many streams lead into it."""
    copies: ClassVar[int] = 1
    """How often each of them does."""
    inputs: ClassVar[int] = 1
    """How many inputs its operator tells apart."""
    keyed: ClassVar[bool] = False
    """Whether records go to it by the key of the stage, whatever its edge."""
    keeps_order: ClassVar[bool] = True
    """Whether it gives records on in the order in which they came."""
    multiplies: ClassVar[bool] = False
    """Whether it gives out many times as many records as it gets: then it gets few."""
    by_chance: ClassVar[bool] = False
    """Whether what it gives out depends on the course of a run: then nothing but a sink is behind it."""
    needs_uid: ClassVar[bool] = True
    """Whether it must have a uid, so that its state is found after an edit."""
    numbers: ClassVar[bool] = False
    """Whether it numbers the records of a key: its notes are `(kind, uid, key, number, path)`."""

    instead: ClassVar[str] = ""
    """The kind that takes its place where subtasks take snapshots by their own clocks, as such modes refuse
    it; "" if they do not."""

    @abstractmethod
    def add(self, site: Site) -> rt.Stream:
        """Add the operator with the uid of the site; those behind it that belong to it end in `BACK`."""

    @abstractmethod
    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        """What it emits of what it has consumed at each input, once all timers have fired."""

    def takes(self, edge: EdgeKind) -> bool:
        """Whether records may be dealt to it so."""
        return True

    def for_sink(self, stream: rt.Stream) -> rt.Stream:
        """What a sink behind it gets."""
        return stream

    def to_sink(self, consumed: Sequence[Records], emitted: Records) -> Records:
        """What a sink behind it must get."""
        return emitted

    def dealt_by(self, stage: Stage, edge: str) -> int | None:
        """By how many keys records are dealt to it; None if not by keys."""
        if self.keyed:
            return stage.keys
        return CUSTOM_KEYS if EDGES[edge].by_key else None

    def captured(self, record: Any) -> Record:
        """The record that is stored in flight in front of it, or of an operator behind that is its own."""
        return self.of_row(record) if isinstance(record, dict) else record

    def of_row(self, row: Mapping[str, Any]) -> Record:
        """The record that a row stands for that is stored in flight there."""
        return pick_up(row)

    def at_cut(self, cut: CutOf) -> Records:
        """What it has emitted; compares its stored state with what it has consumed."""
        return self.passed_on(cut.stage, cut.uid, cut.consumed)

    def judge(self, output: Output, verdict: Verdict) -> None:
        """Compare its notes with what they must be."""
        if self.numbers and output.exactly_once:
            judge_numbers(output, verdict)


class ByChance(StageKind):
    """A kind whose output depends on the course of a run: so only a sink is behind it, and nobody has to
    know what it emits."""

    by_chance: ClassVar = True

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return Records()


def judge_results(
    output: Output, verdict: Verdict, given: Counter[Any], wanted: Counter[Any]
) -> None:
    """What is wanted was given out, nothing else, and nothing too often unless records may be repeated."""
    lost, more = wanted - given, given - wanted
    verdict.lost += lost.total()
    verdict.duplicated += more.total()
    if lost or (more and output.exactly_once) or not given.keys() <= wanted.keys():
        verdict.wrong.append(f"{output.uid}: lost {some(lost)}, too many {some(more)}")


def judge_numbers(output: Output, verdict: Verdict) -> None:
    """The records of a key were numbered 1, 2, 3 ...; some may have been filtered out since.

    A note may be there several times, but only for one record.
    """
    wanted = per_key(output.stage, output.consumed)
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for _, _, key, number, _ in set(output.notes):
        found[key][number] += 1
    for key, numbers in found.items():
        if max(numbers.values()) > 1 or max(numbers) > wanted[key]:
            verdict.wrong.append(
                f"{(output.uid, key)}: numbers {some(numbers)} for {wanted[key]} records"
            )
