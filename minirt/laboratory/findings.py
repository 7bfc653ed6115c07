"""What a comparison has found: a sentence for each finding, and the table that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from minirt.laboratory.matrix import MINIRT
from minirt.laboratory.measured import Comparison, Run
from minirt.laboratory.statistics import (
    ALPHA,
    RUNS_MIN,
    Compared,
    Figure,
    Summary,
    compare,
    figure,
    summary,
    values,
)
from minirt.laboratory.wording import runs, shown, times, with_spread

Kind = Literal["differs", "noise", "fact", "wrong"]

RULE = (
    f"Two settings differ where an exact Mann-Whitney test of their runs gives p of at most {ALPHA:g}; "
    f"else the difference is within the noise. With fewer than {RUNS_MIN} runs of a setting nothing is "
    "said. A value is the median of its runs, in brackets the least and the most of them."
)

_DOMINATES = 0.6
_SAME = 0.02
"""Figures this close are called the same, whatever the test says."""
_FAR = 1.5
"""From here on a difference is told as so many times; with too few runs, only such a one is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, and what kind of news it is."""

    kind: Kind
    words: str

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class _Topic:
    """A figure that settings are compared by in a sentence."""

    name: str
    subject: str


_TOPICS = (
    _Topic("duration_s", "checkpoints took"),
    # Where a load comes and goes, most checkpoints are taken while there is none.
    _Topic("duration_p99_s", "99 % of checkpoints took at most"),
    _Topic("in_flight_bytes", "a checkpoint held in flight"),
    _Topic("sink_rate", "sinks got"),
    _Topic("latency_p99_s", "99 % of records reached a sink within"),
    _Topic("visible_p50_s", "half of the records were visible within"),
    _Topic("first_new_s", "after a kill, the first new record came in"),
    _Topic("caught_up_s", "after a kill, the rate before was reached in"),
    _Topic("rollback_s", "a kill took the job back by"),
    _Topic("processed_twice", "records processed twice after a kill:"),
    _Topic("cpu", "cores in use:"),
)


_LATENCIES = ("latency_p99_s", "visible_p50_s")

FINDINGS_MAX = 40
"""With very many settings, the table tells the rest."""


def findings(comparison: Comparison) -> tuple[Finding, ...]:
    """The sentences, the most important first."""
    order: tuple[Kind, ...] = ("wrong", "differs", "fact", "noise")
    found = sorted(_findings(comparison), key=lambda one: order.index(one.kind))
    if len(found) <= FINDINGS_MAX:
        return tuple(found)
    more = Finding("fact", f"And {len(found) - FINDINGS_MAX} more: the table has them all.")
    return (*found[:FINDINGS_MAX], more)


def table(comparison: Comparison) -> tuple[tuple[str, ...], list[list[str]]]:
    """The figures that some run has, and a row for each setting."""
    names = (
        *("duration_s", "duration_p99_s", "whole_s", "completed", "skipped", "forced"),
        *("in_flight_bytes", "state_bytes", "protocol_rate", "sink_rate"),
        *("latency_p50_s", "latency_p99_s", "latency_p999_s", "first_new_s", "caught_up_s"),
        *("rollback_s", "processed_twice", "cpu", "rss_bytes"),
    )
    shown_figures = [figure(name) for name in names if has(comparison, name)]
    rows = []
    for setting, label in enumerate(comparison.labels):
        cells = []
        for one in shown_figures:
            found = summary(comparison, setting, one.name)
            cells.append("-" if found is None else with_spread(found, one.unit))
        rows.append([label, str(len(comparison.of_setting(setting))), *cells])
    return ("runs", *(one.title for one in shown_figures)), rows


def has(comparison: Comparison, name: str) -> bool:
    """Whether any setting has the figure."""
    settings = range(len(comparison.settings))
    return any(summary(comparison, setting, name) is not None for setting in settings)


def groups(comparison: Comparison) -> list[list[int]]:
    """The settings that are compared with each other, the first of each being what others are held against.

    These are the modes with all else the same; with a single mode, all settings. A setting of a peer is
    held against the same of minirt.
    """
    own = [place for place, one in enumerate(comparison.settings) if one.system == MINIRT]
    single = len({comparison.settings[place].mode for place in own}) == 1
    found: dict[object, list[int]] = {}
    for place in own:
        setting = comparison.settings[place]
        alike = None if single else (setting.choices, setting.parallelism)
        found.setdefault(alike, []).append(place)
    pairs = [
        [comparison.settings.index(replace(one, system=MINIRT)), place]
        for place, one in enumerate(comparison.settings)
        if one.system != MINIRT
    ]
    return [*found.values(), *pairs]


def against_first(comparison: Comparison, setting: int, one: Figure) -> Compared | None:
    """A figure of a setting beside that of the first of its group; None for that one itself."""
    group = next(group for group in groups(comparison) if setting in group)
    if setting == group[0]:
        return None
    return compare(values(comparison, group[0], one), values(comparison, setting, one))


def _findings(comparison: Comparison) -> Iterator[Finding]:
    yield from _about_output(comparison)
    yield from _about_failures(comparison)
    for group in groups(comparison):
        for setting in group[1:]:
            yield from _about_pair(comparison, group[0], setting)
    yield from _about_latency(comparison)
    yield from _about_parts(comparison)


def _about_pair(comparison: Comparison, first: int, setting: int) -> Iterator[Finding]:
    """What a setting differs in from the first of its group, and in one sentence what it does not."""
    alike, close = [], []
    this, that = comparison.labels[setting], comparison.labels[first]
    for topic in _TOPICS:
        one = figure(topic.name)
        here, there = (summary(comparison, place, topic.name) for place in (setting, first))
        compared = against_first(comparison, setting, one)
        if here is None or there is None or compared is None:
            continue
        subject = topic.subject
        if topic.name == "latency_p99_s" and comparison.by_markers:
            subject = subject.replace("records", "latency markers")
        figures = (
            f"{subject} {with_spread(here, one.unit)} with {this}, "
            f"{with_spread(there, one.unit)} with {that}"
        )
        sentence = figures[0].upper() + figures[1:]
        both = f"{one.title} ({shown(here.median, one.unit)} and {shown(there.median, one.unit)})"
        if compared.difference == "too few runs":
            if _far(here, there):
                few = f"{_counted(here.n, there.n)}: too few to tell noise"
                yield Finding("fact", f"{sentence}: {_how_much(here, there)}; {few}.")
            else:
                close.append(both)
        elif _same(here, there) or compared.difference == "within the noise":
            alike.append(both)
        else:
            told = f"{sentence}: {_how_much(here, there)} (p = {compared.p:.2g})"
            doubted = topic.name in _LATENCIES and _doubts_latency(comparison)
            if doubted:
                yield Finding("fact", f"{told}; but see below.")
            else:
                yield Finding("differs", f"{told}.")
    if close:
        told = f"So few runs of {this} and {that} tell nothing of {', '.join(close)}."
        yield Finding("noise", told)
    if alike:
        yield Finding("noise", f"Within the noise between {this} and {that}: {', '.join(alike)}.")


def _counted(here: int, there: int) -> str:
    return f"{runs(here)} of each" if here == there else f"{runs(here)} and {runs(there)}"


def _same(here: Summary, there: Summary) -> bool:
    return abs(here.median - there.median) <= _SAME * max(abs(here.median), abs(there.median))


def _far(here: Summary, there: Summary) -> bool:
    """Whether two figures are worth a sentence though nobody can tell their noise."""
    small, large = sorted((here.median, there.median))
    return large >= _FAR * small and large > 0


def _how_much(here: Summary, there: Summary) -> str:
    small, large = sorted((here.median, there.median))
    if small <= 0:
        return "more" if here.median > there.median else "less"
    if large / small < _FAR:
        return f"{(here.median / there.median - 1) * 100:+.0f} %"
    return f"{times(large, small)} {'more' if here.median > there.median else 'less'}"


def _about_output(comparison: Comparison) -> Iterator[Finding]:
    judged = [run for run in comparison.runs if run.verification.verdict != "not verified"]
    wrong = [run for run in judged if run.verification.verdict == "failed"]
    for run in wrong:
        yield Finding(
            "wrong", f"The output of {_named(comparison, run)} is wrong: {run.verification.words}."
        )
    if judged and not wrong:
        records = sum(run.verification.expected or 0 for run in judged)
        yield Finding(
            "fact",
            f"The output of {_all(len(judged))} is right: of {records:,} records none is missing and "
            "none came twice.",
        )
    if not judged and comparison.runs:
        told = f"No output was verified: {comparison.runs[0].verification.words}."
        if comparison.workload is None:
            told += " --expect has that of a job verified which ends by itself."
        yield Finding("fact", told)


def _all(count: int) -> str:
    words = {1: "the verified run", 2: "both verified runs"}
    return words.get(count, f"all {count} verified runs")


def _about_latency(comparison: Comparison) -> Iterator[Finding]:
    """Workloads tell when a record was made first; what a job of the user tells is not known."""
    if comparison.by_markers:
        yield Finding(
            "fact",
            "Latencies are those of markers from a source to the chain of a sink, of all sinks together: "
            "work on a record itself and what operators hold back are not in them. With --latency-from "
            "they are.",
        )
    if _doubts_latency(comparison):
        yield Finding(
            "fact",
            f"Latencies count from the time in {comparison.latency_from}. If the job writes it when it "
            "reads a record, what comes once more after a kill looks younger than it is, and more so "
            "where more comes: then compare latencies without --kill.",
        )


def _doubts_latency(comparison: Comparison) -> bool:
    """Whether kills may have made records look younger than they were."""
    if comparison.latency_from is None or comparison.workload is not None:
        return False
    return any(run.kills and run.latency is not None for run in comparison.runs)


def _about_failures(comparison: Comparison) -> Iterator[Finding]:
    early = [run for run in comparison.runs if run.over_early]
    if early:
        which = _named(comparison, early[0]) if len(early) == 1 else f"{len(early)} runs"
        yield Finding(
            "wrong",
            f"Of {which} there are no figures: the job was over before measuring began. Give it more "
            f"input, or fewer --seconds: a part of them, here {comparison.warm_up_s:g} s, is to warm up.",
        )
    for run in comparison.runs:
        if run.ended == "failed":
            error = run.error.strip().splitlines() or ["no reason given"]
            last = error[-1] if len(error) > 1 else ""
            told = f"{error[0]} {last}".strip()
            yield Finding("wrong", f"{_named(comparison, run).capitalize()} failed: {told}")
    for setting, label in enumerate(comparison.labels):
        own = comparison.of_setting(setting)
        without = [run for run in own if not run.completed]
        if without:
            length = shown(max(run.measured_s for run in without), "s")
            which = runs(len(own)) if without == [*own] else f"{len(without)} of {runs(len(own))}"
            yield Finding(
                "wrong", f"With {label} no checkpoint completed: {which} of up to {length}."
            )
        without_kill = [one for run in own if not run.kills for one in run.failed]
        if without_kill:
            yield Finding(
                "wrong",
                f"With {label} {len(without_kill)} checkpoints failed: {without_kill[0].reason}.",
            )
        if comparison.kills and own and not any(run.kills for run in own):
            yield Finding("wrong", f"With {label} no worker was killed: its runs were over before.")
        lost = [kill for run in own for kill in run.kills if kill.first_new_record_s is None]
        if lost:
            yield Finding(
                "wrong",
                f"With {label}, after {len(lost)} of {sum(len(run.kills) for run in own)} kills no new "
                "record came before the run or the next kill ended it.",
            )


def _about_parts(comparison: Comparison) -> Iterator[Finding]:
    """Which part of a checkpoint takes most of its time, and in which settings."""
    found: dict[str, list[str]] = {}
    for setting, label in enumerate(comparison.labels):
        whole = summary(comparison, setting, "duration_s")
        for name in _PART_WORDS:
            part = summary(comparison, setting, name)
            if whole is None or part is None or whole.median <= 0:
                continue
            share = min(1.0, part.median / whole.median)
            if share >= _DOMINATES:
                found.setdefault(name, []).append(f"{label} ({share * 100:.0f} %)")
    for name, labels in found.items():
        yield Finding(
            "fact",
            f"Most of a checkpoint's time was {_PART_WORDS[name]}: {'; '.join(labels)}.",
        )


_PART_WORDS = {
    "start_delay_s": "start delay, in which barriers waited behind data",
    "alignment_s": "alignment, in which subtasks waited for the barriers of other channels",
    "sync_s": "the synchronous part, in which subtasks copied state",
    "async_s": "the asynchronous part, in which parts were written to storage",
}


def _named(comparison: Comparison, run: Run) -> str:
    return f"run {run.repeat + 1} of {comparison.labels[run.setting]}"
