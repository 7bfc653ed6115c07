"""Windows of all kinds, of rows and of columns: each result tells all records of its window."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import minirt as rt
from minirt.data.values import unpack_value
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    ByChance,
    CutOf,
    Output,
    Record,
    Records,
    Site,
    Stamped,
    Verdict,
    key_function,
    key_of,
    pick_up,
    some,
)
from minirt.testing.conformance.stages.laid_out import laid_out

SIZE_MS, EVERY_MS, GAP_MS, COUNT = 16, 8, 3, 3

WINDOWS: Mapping[str, rt.Window] = {
    "tumbling": rt.Tumbling(f"{SIZE_MS}ms"),
    "sliding": rt.Sliding(f"{SIZE_MS}ms", f"{EVERY_MS}ms"),
    "session": rt.Session(f"{GAP_MS}ms"),
    "count": rt.CountWindow(COUNT),
    "global": rt.GlobalWindow(rt.AfterTime(f"{SIZE_MS}ms"), purge=True),
}
VARIANTS = [(form, kind) for kind in WINDOWS for form in ("rows", "columns")]
"""How often one of them is drawn depends on the keys and forms of a stage."""

_TABLES = {"tumbling": "window/", "sliding": "pane/", "session": "session", "count": "pane"}
_KEYS = {"rows": ("key \x1ehashed",), "columns": ("key key",)}
_MORE = {"session": ("key \x1esession",), "count": ("key \x1epane",)}
_HELD = {"rows": "records = HeldRecords(\x1erow)\x1f0", "columns": "records = Collect(record)\x1f1"}


class Found(NamedTuple):
    """A window that was given out."""

    key: int
    start: int | None
    end: int | None
    members: tuple[Stamped, ...]


class WindowsStage(ByChance):
    """Gives out records whose only note tells a window and its members; which go together is by chance
    where windows count records."""

    name: ClassVar = "windows"
    words: ClassVar = "windows of all kinds by key"
    weight: ClassVar = 2
    keyed: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        form, kind = variant(site.stage)
        if form == "rows":
            keyed = site.streams[0].key_by(key_function(site.stage.keys))
            return keyed.window(WINDOWS[kind]).process(Tell(site.uid), **site.settings)
        windows = laid_out(site, "record", "key").key_by("key").window(WINDOWS[kind])
        found = windows.aggregate(rt.Collect("record", "records"), **site.settings)
        return found.map(TellRow(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def of_row(self, row: Mapping[str, Any]) -> Record:
        return TellRow("")(row) if "records" in row else pick_up(row)

    def at_cut(self, cut: CutOf) -> Records:
        """A record waits in state, or in a window that was given out; in both where windows overlap."""
        _, kind = variant(cut.stage)
        waiting = Counter(_waiting(cut))
        given = Counter(m for record in cut.put_out() for m in _found(record[2][0]).members)
        wanted = cut.consumed[0]
        if kind == "sliding":
            share = SIZE_MS // EVERY_MS
            there = Counter({m: min(n, waiting[m] + given[m]) for m, n in wanted.items()})
            cut.compare(f"what {cut.uid} has taken in", +there, wanted)
            often = Counter({m: n for m, n in given.items() if n > share * wanted[m]})
            cut.compare(f"what {cut.uid} has given out too often", often, Counter())
            cut.compare(f"the state of {cut.uid}", waiting, waiting & wanted)
        else:
            cut.compare(f"the windows of {cut.uid}", waiting + given, wanted)
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        found = Counter(map(_found, output.notes))
        wrong = [*_wrong(output, found)]
        verdict.wrong += [f"windows of {output.uid}: {text}" for text in wrong]


class Tell(rt.WindowProcess):
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def process(self, records: list[Any], ctx: rt.WindowContext) -> Iterable[Record]:
        yield told(self._uid, ctx.key, ctx.start, ctx.end, records)


class TellRow:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: Mapping[str, Any]) -> Record:
        start, end = (
            round(row[name].timestamp() * 1000) if name in row else None
            for name in ("window_start", "window_end")
        )
        return told(self._uid, row["key"], start, end, map(ast.literal_eval, row["records"]))


def told(
    uid: str, key: int, start: int | None, end: int | None, records: Iterable[Record]
) -> Record:
    members = in_order((tuple(path), time) for path, time, _ in records)
    note = ("windows", uid, key, start, end, members)
    return (("windows", uid, key, start, end), 0, (note,))


def in_order(members: Iterable[Stamped]) -> tuple[Stamped, ...]:
    """Always the same; numbers and words, of which paths are made, are not greater or less."""
    return tuple(sorted(members, key=repr))


def variant(stage: Stage) -> tuple[str, str]:
    return VARIANTS[(3 * stage.keys + len(stage.parallelism)) % len(VARIANTS)]


def _found(note: Any) -> Found:
    _, _, key, start, end, members = note
    return Found(key, start, end, tuple((tuple(path), time) for path, time in members))


def _waiting(cut: CutOf) -> Iterator[Stamped]:
    """The records in stored windows that were not given out."""
    form, kind = variant(cut.stage)
    table, keys = _TABLES.get(kind, "value"), (*_KEYS[form], *_MORE.get(kind, ()))
    for name, row in cut.stored.arrays(cut.uid, table, key=keys):
        packed = row[_HELD[form]]
        given = kind in ("tumbling", "session", "global") and not row["pending"]
        if given or packed is None or name.startswith("session@"):
            continue
        held = unpack_value(packed)
        records = held[1] if form == "rows" else map(ast.literal_eval, held)
        yield from ((path, time) for path, time, _ in records)


def _wrong(output: Output, found: Counter[Found]) -> Iterator[str]:
    _, kind = variant(output.stage)
    if kind in ("count", "global"):
        yield from _wrong_members(output, found, full=kind == "count")
        return
    wanted = _expected(output.stage, output.consumed, kind)
    if output.exactly_once:
        if found != wanted:
            yield f"lost {some(wanted - found)}, too many {some(found - wanted)}"
        return
    given: dict[Any, set[Stamped]] = defaultdict(set)
    for window in found:
        given[window.key] |= {*window.members}
    for window in wanted:
        if not given[window.key] >= {*window.members}:
            yield f"records of {window} are in none"


def _wrong_members(output: Output, found: Counter[Found], *, full: bool) -> Iterator[str]:
    """Windows by count are full; of each key so many records are left over as do not fill one."""
    given: dict[int, Records] = defaultdict(Counter)
    for window, times in found.items():
        for member in window.members:
            given[window.key][member] += times
        if full and len(window.members) != COUNT:
            yield f"{window} has not {COUNT} records"
    by_key: dict[int, Records] = defaultdict(Counter)
    for (path, time), n in output.consumed.items():
        by_key[key_of(path, output.stage.keys)][path, time] += n
    for key, wanted in by_key.items():
        got, left = given[key], wanted.total() % COUNT if full else 0
        if got.total() < wanted.total() - left or (not full and wanted - got):
            yield f"key {key} lost {some(wanted - got)}"
        if not got.keys() <= wanted.keys() or (output.exactly_once and got - wanted):
            yield f"key {key} has too many: {some(got - wanted)}"


def _expected(stage: Stage, records: Records, kind: str) -> Counter[Found]:
    by_key: dict[int, list[Stamped]] = defaultdict(list)
    for (path, time), n in records.items():
        by_key[key_of(path, stage.keys)] += [(path, time)] * n
    windows: Counter[Found] = Counter()
    for key, own in by_key.items():
        own.sort(key=lambda member: member[1])
        parts = _sessions(own) if kind == "session" else _in_panes(own, kind)
        for (start, end), members in parts:
            windows[Found(key, start, end, in_order(members))] += 1
    return windows


def _sessions(own: list[Stamped]) -> Iterator[tuple[tuple[int, int], list[Stamped]]]:
    part: list[Stamped] = []
    for member in own:
        if part and member[1] > part[-1][1] + GAP_MS:
            yield (part[0][1], part[-1][1] + GAP_MS), part
            part = []
        part.append(member)
    if part:
        yield (part[0][1], part[-1][1] + GAP_MS), part


def _in_panes(own: list[Stamped], kind: str) -> Iterable[tuple[tuple[int, int], list[Stamped]]]:
    every = SIZE_MS if kind == "tumbling" else EVERY_MS
    windows: dict[tuple[int, int], list[Stamped]] = defaultdict(list)
    for member in own:
        newest = member[1] // every * every
        for start in range(newest, member[1] - SIZE_MS, -every):
            windows[start, start + SIZE_MS].append(member)
    return windows.items()
