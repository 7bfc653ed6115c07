"""The report: one HTML file that needs nothing else, and plots as SVG files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from minirt.laboratory.explained import EXPLAINED
from minirt.laboratory.figures import Drawn, draw_all
from minirt.laboratory.findings import RULE, against_first, findings, groups
from minirt.laboratory.matrix import MINIRT
from minirt.laboratory.measured import Comparison, KillMeasured, Run
from minirt.laboratory.palette import ALL, styles
from minirt.laboratory.statistics import FIGURES, Figure, summary
from minirt.laboratory.wording import runs as count_runs
from minirt.laboratory.wording import shown

HTML_BYTES_MAX = 5_000_000
"""A longer page is written without its largest plots, and says so."""

_GROUPS = (
    ("Checkpoints", ("duration_s", "duration_p99_s", "start_delay_s", "alignment_s", "sync_s")),
    ("", ("async_s", "completed", "failed", "in_flight_bytes", "state_bytes", "stored_bytes")),
    ("", ("whole_s", "skipped", "forced", "protocol_rate")),
    ("Throughput and latency", ("sink_rate", "source_rate", "latency_p50_s", "latency_p99_s")),
    (
        "",
        ("latency_p999_s", "visible_p50_s", "visible_p99_s", "lag", "queued_bytes", "backpressure"),
    ),
    ("Recovery, from a kill", ("first_record_s", "first_new_s", "caught_up_s", "processed_twice")),
    ("", ("rollback_s",)),
    ("Cost", ("cpu", "rss_bytes")),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of a setting: exactly, and as it is read."""

    value: str
    words: str
    spread: str
    difference: str


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of all settings; None for those that do not have it."""

    name: str
    title: str
    cells: tuple[Cell | None, ...]


def write_svg(comparison: Comparison, folder: Path) -> None:
    """A file for each plot, in a folder that is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for drawn in draw_all(comparison):
        (folder / f"{drawn.name}.svg").write_text(drawn.file, encoding="utf-8")


def write_html(comparison: Comparison, file: Path) -> None:
    file.write_text(to_html(comparison), encoding="utf-8")


def to_html(comparison: Comparison) -> str:
    """The page. It refers to nothing outside of it, and runs no script."""
    plots, notes = draw_all(comparison), list(comparison.notes)
    page = _render(comparison, plots, notes)
    while len(page.encode()) > HTML_BYTES_MAX and plots:
        largest = max(plots, key=lambda plot: len(plot.page))
        notes.append(
            f"The plot {largest.title!r} is left out: the page would be too long. See --svg."
        )
        plots = tuple(plot for plot in plots if plot is not largest)
        page = _render(comparison, plots, notes)
    return page


def _render(comparison: Comparison, plots: tuple[Drawn, ...], notes: list[str]) -> str:
    templates = Environment(
        loader=PackageLoader("minirt.laboratory", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    looks, tables = styles(comparison.settings), _table(comparison)
    return templates.get_template("report.html.j2").render(
        title=comparison.title,
        labels=comparison.labels,
        legend=[
            (label, look.colour.name) for label, look in zip(comparison.labels, looks, strict=True)
        ],
        colours=ALL,
        summary=_summary(comparison),
        complete=comparison.complete,
        findings=findings(comparison),
        groups=tables,
        counts=[count_runs(len(comparison.of_setting(one))) for one in range(len(looks))],
        explained=[(row.title, EXPLAINED[row.name]) for _, rows in tables for row in rows],
        against=_against(comparison),
        rule=RULE,
        plots=plots,
        operators=list(_operators(comparison)),
        kills=list(_kills(comparison)),
        runs=list(_runs(comparison)),
        notes=notes,
        facts=list(_facts(comparison)),
    )


def _summary(comparison: Comparison) -> str:
    length = f"{comparison.seconds:g} s each, after {comparison.warm_up_s:g} s to warm up"
    every, killed = comparison.kill_every_s, ""
    if every is not None:
        killed = f", a worker killed about every {every:g} s"
    elif comparison.kill_at_s:
        killed = (
            f", a worker killed after {' and '.join(f'{at:g} s' for at in comparison.kill_at_s)}"
        )
    machine = comparison.machine
    return (
        f"{comparison.started_at}; {count_runs(len(comparison.runs))} of {length}{killed}; "
        f"{machine.get('cores', '?')} cores, {machine.get('processor', '')}"
    )


def _against(comparison: Comparison) -> str:
    own = [g for g in groups(comparison) if comparison.settings[g[-1]].system == MINIRT]
    words = comparison.labels[own[0][0]]
    if len(own) > 1:
        words = f"the same in mode {comparison.settings[own[0][0]].mode.replace('_', ' ')}"
    peers = dict.fromkeys(one.system for one in comparison.settings if one.system != MINIRT)
    return words + "".join(f"; of {peer}, from minirt in the same mode" for peer in peers)


def _table(comparison: Comparison) -> list[tuple[str, list[Row]]]:
    by_name = {one.name: one for one in FIGURES}
    found: list[tuple[str, list[Row]]] = []
    for title, names in _GROUPS:
        rows = [row for name in names if (row := _row(comparison, by_name[name])) is not None]
        if title:
            found.append((title, rows))
        else:
            found[-1][1].extend(rows)
    return [(title, rows) for title, rows in found if rows]


def _row(comparison: Comparison, one: Figure) -> Row | None:
    cells = tuple(_cell(comparison, place, one) for place in range(len(comparison.settings)))
    return Row(one.name, one.title, cells) if any(cells) else None


def _cell(comparison: Comparison, setting: int, one: Figure) -> Cell | None:
    found = summary(comparison, setting, one.name)
    if found is None:
        return None
    least, most = shown(found.least, one.unit), shown(found.most, one.unit)
    spread = [] if least == most else [f"{least} to {most}"]
    if found.n != len(comparison.of_setting(setting)):
        spread.append(f"of {count_runs(found.n)}")
    compared = against_first(comparison, setting, one)
    difference = ""
    if compared is not None and compared.p is not None:
        difference = f"{compared.difference}, p = {compared.p:.2g}"
    return Cell(repr(found.median), shown(found.median, one.unit), ", ".join(spread), difference)


def _operators(comparison: Comparison) -> Iterator[list[str]]:
    for setting, label in enumerate(comparison.labels):
        for run in comparison.of_setting(setting)[:1]:
            for one in run.operators:
                pressed = one.soft_backpressure + one.hard_backpressure
                shares = (one.busy, one.busiest, pressed, one.idle)
                shown_shares = [shown(share, "share") for share in shares]
                yield [label, one.name, str(one.subtasks), *shown_shares]


def _kills(comparison: Comparison) -> Iterator[list[str]]:
    for run in comparison.runs:
        name = f"{comparison.labels[run.setting]}, {run.repeat + 1}"
        for kill in run.kills:
            yield [name, shown(kill.at_s, "s"), ", ".join(kill.subtasks), *_cost(kill)]


def _cost(kill: KillMeasured) -> list[str]:
    checkpoint = "none" if kill.restored_checkpoint is None else str(kill.restored_checkpoint)
    durations = (kill.first_record_s, kill.first_new_record_s, kill.caught_up_s)
    times = ["not seen" if value is None else shown(value, "s") for value in durations]
    twice = "not known" if kill.processed_twice is None else f"{kill.processed_twice:,}"
    return [checkpoint, *times, twice]


def _runs(comparison: Comparison) -> Iterator[list[str]]:
    for run in comparison.runs:
        yield [
            comparison.labels[run.setting],
            str(run.repeat + 1),
            str(run.seed),
            run.ended if not run.error else f"{run.ended}: {run.error.splitlines()[0]}",
            shown(run.measured_s, "s"),
            str(len(run.completed)),
            str(len(run.failed)),
            f"{run.sink_records:,}",
            f"{run.committed_records:,}",
            _output(run),
        ]


def _output(run: Run) -> str:
    judged = run.verification
    return (
        judged.verdict if judged.verdict == "not verified" else f"{judged.verdict}: {judged.words}"
    )


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    yield "command", comparison.command
    yield "job", comparison.target
    yield (
        "latency",
        (
            f"from the time in field {comparison.latency_from} of a record until a sink got it"
            if comparison.latency_from is not None
            else "by markers, from a source to the chain of a sink, of all sinks together"
            if comparison.by_markers
            else "not measured; --latency-from names the field of a record that says when it was made"
        ),
    )
    if comparison.kills:
        yield "seed", str(comparison.seed)
    yield "versions", _listed(comparison.versions)
    machine: dict[str, Any] = dict(comparison.machine)
    memory = machine.pop("memory_bytes", None)
    if isinstance(memory, int):
        machine["memory"] = shown(memory, "bytes")
    yield "machine", _listed(machine)


def _listed(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
