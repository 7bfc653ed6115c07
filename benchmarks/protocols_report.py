"""The tables and plots of `benchmarks.protocols`, of what was stored: nothing is run here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from minirt.cli.tables import in_one_line
from minirt.errors import ConfigurationError
from minirt.laboratory.canvas import in_units, panels, style, to_svg
from minirt.laboratory.drawing import LEAST_S, each_setting, logarithmic
from minirt.laboratory.measured import Comparison, Run
from minirt.laboratory.statistics import figure, summary
from minirt.laboratory.wording import with_spread

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
"""What is between them in the page of the docs is written by this program."""

PAGE = "comparing-protocols.md"
PLOT_FOLDER = "comparing"


class Sustains(Protocol):
    """Whether a run of a case has sustained its rate."""

    def __call__(self, run: Run, case: str) -> bool: ...


Stages = Sequence[tuple[str, Comparison]]

_COSTS = (
    *("duration_s", "whole_s", "stored_bytes", "in_flight_bytes", "protocol_rate"),
    *("skipped", "forced", "sink_rate", "latency_p50_s", "latency_p99_s"),
)
_RECOVERY = ("rollback_s", "processed_twice", "first_record_s", "first_new_s", "caught_up_s")


@dataclass(frozen=True)
class Plot:
    """A panel for each stage, a row for each mode, a dot for each value."""

    name: str
    title: str
    unit: Literal["s", "bytes"]
    values: Callable[[Run], list[float]]


PLOTS = (
    Plot(
        "protocols-checkpoints",
        "From the first snapshot of a checkpoint until it is durable",
        "s",
        lambda run: [one.duration_s + one.age_s for one in run.completed],
    ),
    Plot(
        "protocols-stored",
        "What a checkpoint stores",
        "bytes",
        lambda run: [float(one.bytes) for one in run.completed if one.bytes is not None],
    ),
    Plot(
        "protocols-recovery",
        "From a kill to the first new record",
        "s",
        lambda run: [
            kill.first_new_record_s for kill in run.kills if kill.first_new_record_s is not None
        ],
    ),
)


def write_report(found: Stages, left_out: Sequence[str], out: Path, sustains: Sustains) -> str:
    """Write plots into a folder, and the report with its tables. Returns the report, as Markdown."""
    stages = shown_stages(found, sustains)
    for plot in PLOTS:
        svg = _draw(plot, stages)
        if svg is not None:
            (out / f"{plot.name}.svg").write_text(svg, encoding="utf-8")
    text = "\n".join(_report(found, stages, left_out, out, sustains))
    (out / "report.md").write_text(text, encoding="utf-8")
    return text


def write_docs(text: str, out: Path, docs: Path) -> None:
    """Put the report into its page, and the plots beside it. Raises ConfigurationError without a place."""
    page = docs / PAGE
    head, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ConfigurationError(f"{page} has no place for figures: {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")
    for plot in PLOTS:
        drawn = out / f"{plot.name}.svg"
        if drawn.exists():
            (docs / PLOT_FOLDER / drawn.name).write_bytes(drawn.read_bytes())


def case_of(name: str) -> str:
    """The names of stages begin with those of their cases."""
    return name.partition(" ")[0]


def shown_stages(found: Stages, sustains: Sustains) -> list[tuple[str, Comparison]]:
    """Of each case the kills, and the highest rate that all modes sustain, or the first."""
    shown_: dict[tuple[str, bool], tuple[str, Comparison]] = {}
    for name, comparison in found:
        key = (case_of(name), comparison.kill_every_s is not None)
        held = sustained_by(comparison, partial(sustains, case=case_of(name)))
        if key not in shown_ or all(held.values()):
            shown_[key] = (name, comparison)
    return [*shown_.values()]


def sustained(found: Stages, sustains: Sustains) -> dict[str, dict[str, tuple[float, bool]]]:
    """By case and mode: the highest rate that it has sustained, and whether a higher one was tried."""
    rates: dict[str, dict[str, tuple[float, bool]]] = {}
    for name, comparison in found:
        if comparison.kill_every_s is not None or " at " not in name:
            continue
        rate = float(name.split(" at ")[1].split(" ")[0].replace(",", ""))
        of_case = rates.setdefault(case_of(name), {})
        judged = sustained_by(comparison, partial(sustains, case=case_of(name)))
        for protocol, held in judged.items():
            before, _ = of_case.get(protocol, (0.0, False))
            of_case[protocol] = (max(before, rate), False) if held else (before, True)
    return rates


def sustained_by(comparison: Comparison, sustains: Callable[[Run], bool]) -> Mapping[str, bool]:
    """Whether most runs of each protocol have sustained their rate, by its name."""
    found = {}
    for place, name in enumerate(comparison.labels):
        runs = [run for run in comparison.runs if run.setting == place]
        found[name] = 2 * sum(map(sustains, runs)) > len(runs)
    return found


def _report(
    found: Stages, stages: Stages, left_out: Sequence[str], out: Path, sustains: Sustains
) -> Iterator[str]:
    one = found[0][1]
    counts = f"{one.repeat} run{'s' if one.repeat > 1 else ''} of each mode in each stage"
    processor = f"{one.machine['cores']} cores, {one.machine['processor']}"
    yield f"Measured by `{one.command}`: {counts}, {one.seconds:g} s each, on {processor}. With one run, "
    yield "only differences of several times mean anything."
    rates = sustained(found, sustains)
    if rates:
        modes = list(dict.fromkeys(mode for own in rates.values() for mode in own))
        yield from (
            "",
            "The highest rate that each mode has sustained, of all that were tried:",
            "",
        )
        yield from _table(
            ("mode", *rates),
            [[mode, *(_rate(own.get(mode)) for own in rates.values())] for mode in modes],
        )
    for name, comparison in stages:
        yield from ("", f"**{name}**", "")
        yield from _table(*_figures(comparison))
        yield from ("", _verdicts(comparison))
    for plot in PLOTS:
        if (out / f"{plot.name}.svg").exists():
            yield from ("", f"![{plot.title}]({PLOT_FOLDER}/{plot.name}.svg)")
    if left_out:
        yield from ("", f"Left out for lack of time: {'; '.join(left_out)}.")


def _rate(best: tuple[float, bool] | None) -> str:
    if best is None:
        return "-"
    rate, tried_more = best
    if not rate:
        return "none"
    return f"{rate:,.0f}" if tried_more else f"{rate:,.0f} or more"


def _figures(comparison: Comparison) -> tuple[Sequence[str], list[list[str]]]:
    names = (*_RECOVERY, "duration_s", "whole_s") if comparison.kill_every_s else _COSTS
    settings = range(len(comparison.settings))
    known = [
        figure(name)
        for name in names
        if any(summary(comparison, place, name) is not None for place in settings)
    ]
    rows = []
    for place, label in enumerate(comparison.labels):
        cells = [label]
        for one in known:
            value = summary(comparison, place, one.name)
            cells.append("-" if value is None else with_spread(value, one.unit))
        rows.append(cells)
    return ("mode", *(one.title for one in known)), rows


def _verdicts(comparison: Comparison) -> str:
    """Of all runs together."""
    judged = [run.verification for run in comparison.runs]
    passed = [one for one in judged if one.verdict == "passed"]
    records = sum(one.expected or 0 for one in passed)
    if len(passed) == len(judged):
        return f"All {len(judged)} runs put out what they must: {records:,} results, each once."
    others = dict.fromkeys(
        f"{comparison.labels[run.setting]}: {in_one_line(run.error or run.verification.words)}"
        for run in comparison.runs
        if run.verification.verdict != "passed"
    )
    return f"{len(passed)} of {len(judged)} runs were verified as right. " + "; ".join(others) + "."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _draw(plot: Plot, stages: Stages) -> str | None:
    known = [
        (name, comparison)
        for name, comparison in stages
        if any(plot.values(run) for run in comparison.runs if run.counts)
    ]
    if not known:
        return None
    rows = max(len(comparison.settings) for _, comparison in known)
    with style():
        found, axes = panels(len(known), 0.65 + 0.24 * rows)
        for (name, comparison), axis in zip(known, axes, strict=True):
            axis.set_title(name)
            _draw_panel(plot, comparison, axis)
        return to_svg(found, plot.title)


def _draw_panel(plot: Plot, comparison: Comparison, axis: Any) -> None:
    settings = [*each_setting(comparison)]
    least = LEAST_S if plot.unit == "s" else 1.0
    for row, (_, _, look, runs) in enumerate(settings):
        values = [max(value, least) for run in runs for value in plot.values(run)]
        colour = look.colour.light
        axis.plot(values, [row] * len(values), look.marker, color=colour, alpha=0.5, markersize=4.5)
        if values:
            middle = statistics.median(values)
            axis.plot([middle, middle], [row - 0.32, row + 0.32], color=colour, linewidth=2.5)
    axis.set_yticks(range(len(settings)), [label for _, label, _, _ in settings])
    axis.set_ylim(len(settings) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    logarithmic(axis.xaxis, axis.set_xscale, axis.set_xlim, axis.get_xlim)
    in_units(axis.xaxis, plot.unit)
