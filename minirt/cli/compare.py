"""`minirt compare`: one job under several settings, measured, and what they differ in."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from minirt.cli.compare_options import (
    CsvOption,
    ExpectOption,
    FromOption,
    HtmlOption,
    JobArgument,
    JsonOption,
    KillOption,
    LatencyFromOption,
    ModesOption,
    ParallelismOption,
    PeersOption,
    RepeatOption,
    SecondsOption,
    SeedOption,
    SetOption,
    SvgOption,
    WorkloadOption,
)
from minirt.errors import ConfigurationError
from minirt.units import seconds as read_seconds

if TYPE_CHECKING:
    from minirt.laboratory.bench import Plan
    from minirt.laboratory.matrix import Factor, Setting
    from minirt.laboratory.measured import Comparison, Run
    from minirt.laboratory.peer import Beside
    from minirt.laboratory.workload import Defaults

INTERRUPTED = 130

_LAB = "minirt compare needs the extra lab: pip install 'minirt[lab]'"


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where the comparison is written."""

    json: str | None
    html: str | None
    csv: str | None
    svg: str | None

    @property
    def drawn(self) -> bool:
        return self.html is not None or self.svg is not None

    def check(self) -> None:
        from minirt.laboratory.bench import refuse_unwritable

        refuse_unwritable("--json", self.json)
        refuse_unwritable("--html", self.html)
        refuse_unwritable("--csv", self.csv, folder=True)
        refuse_unwritable("--svg", self.svg, folder=True)
        if self.drawn:
            from minirt.laboratory.extra import need_drawing

            need_drawing()


def compare(
    job: JobArgument = None,
    workload: WorkloadOption = None,
    modes: ModesOption = None,
    seconds: SecondsOption = None,
    repeat: RepeatOption = None,
    kill: KillOption = None,
    set_: SetOption = None,
    parallelism: ParallelismOption = None,
    latency_from: LatencyFromOption = None,
    expect: ExpectOption = None,
    peers: PeersOption = None,
    json: JsonOption = None,
    html: HtmlOption = None,
    csv: CsvOption = None,
    svg: SvgOption = None,
    from_: FromOption = None,
    seed: SeedOption = None,
) -> None:
    """Run a job in several checkpoint modes, and say what they differ in.

    Each setting runs in turn, several times, in processes and folders of its own. Without options, two
    modes take about two minutes. Sinks that write files write into a folder of the run instead, which
    is removed; other sinks of your own are replaced by one that counts: the report says which.

    Ctrl-C ends it, and what was measured until then is reported all the same. The exit status is 1 if a
    run failed or its output was wrong.
    """
    try:
        import psutil  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(_LAB) from error
    outputs = _Outputs(json, html, csv, svg)
    if from_ is not None:
        _refuse_beside_from(locals())
        _draw_again(from_, outputs)
        return
    outputs.check()
    asked = _Asked(
        *(job, workload, modes, seconds, repeat, kill, set_ or []),
        *(parallelism, latency_from, seed, peers, expect),
    )
    plan, comparison = _planned(asked)
    comparison = run_plan(plan, comparison)
    if not comparison.runs:
        raise typer.Exit(INTERRUPTED)
    _report(comparison, outputs)
    if not comparison.complete:
        raise typer.Exit(INTERRUPTED)
    wrong = any(
        run.ended == "failed" or run.verification.verdict == "failed" for run in comparison.runs
    )
    if wrong:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The call, as it was made."""

    job: str | None
    workload: str | None
    modes: str | None
    seconds: float | None
    repeat: int | None
    kill: str | None
    sets: Sequence[str]
    parallelism: str | None
    latency_from: str | None
    seed: int | None
    peers: str | None
    expect: str | None

    def check(self) -> None:
        """Raise ConfigurationError for what does not go together."""
        if (self.job is None) == (self.workload is None):
            raise ConfigurationError("name the Python file of a job, or a --workload, and not both")
        if self.workload is not None and self.latency_from is not None:
            raise ConfigurationError(
                "--latency-from has no effect with --workload, which says so itself"
            )
        if self.latency_from is not None and not self.latency_from.strip():
            raise ConfigurationError("--latency-from names no field")
        if self.seed is not None and self.kill is None:
            raise ConfigurationError("--seed has no effect without --kill")
        if self.peers is not None and self.workload is None:
            raise ConfigurationError("--peers has no effect without --workload")
        if self.expect is not None:
            if self.workload is not None:
                raise ConfigurationError(
                    "--expect has no effect with --workload, which knows itself"
                )
            from minirt.laboratory.expected import check_expected

            check_expected(self.expect)

    def kills(self, length_s: float) -> tuple[float | None, tuple[float, ...]]:
        """How often to kill, or when, in runs of this length."""
        if self.kill is None:
            return None, ()
        word, equals, text = self.kill.partition("=")
        if word.strip() not in ("every", "at") or not equals:
            raise ConfigurationError(
                f"--kill {self.kill!r}: write every=DURATION, such as every=10s, or at=DURATION,..."
            )
        if word.strip() == "at":
            at = tuple(sorted(read_seconds(one.strip(), "--kill at") for one in text.split(",")))
            if at[-1] >= length_s:
                raise ConfigurationError(
                    f"--kill at={at[-1]:g}s: a run is over after {length_s:g} s"
                )
            return None, at
        every_s = read_seconds(text.strip(), "--kill every")
        if not 1.0 <= every_s <= length_s / 1.5:
            raise ConfigurationError(
                f"--kill every={every_s:g}s: a run of {length_s:g} s has no room for it; the interval "
                f"must be from 1 s to {length_s / 1.5:g} s"
            )
        return every_s, ()


def _planned(asked: _Asked) -> tuple[Plan, Comparison]:
    """Everything is checked before anything is started. Raises ConfigurationError."""
    from minirt.laboratory import bench, matrix
    from minirt.laboratory.trial import RunRequest, described
    from minirt.modes import find_mode

    asked.check()
    defaults = _defaults(asked.workload)
    length_s = asked.seconds or defaults.seconds
    kill_every_s, kill_at_s = asked.kills(length_s)
    modes = [mode.strip() for mode in (asked.modes or ",".join(defaults.modes)).split(",")]
    modes = [find_mode(mode).name for mode in modes]
    counts = (
        ()
        if asked.parallelism is None
        else matrix.split_numbers(asked.parallelism, "--parallelism")
    )
    with_peers = _with_peers(asked, matrix.cross(modes, counts, _factors(asked, defaults)))
    settings = with_peers.settings
    repeat = asked.repeat or defaults.repeat
    latency_from = asked.latency_from
    if asked.workload is not None:
        from minirt.laboratory.workloads import find_workload

        latency_from = find_workload(asked.workload).latency_from
    warm_up_s = min(defaults.warm_up_s, length_s / 5)
    requests = tuple(
        RunRequest(
            *(asked.job, asked.workload, setting, length_s, warm_up_s),
            *(kill_every_s, latency_from, 0, "", asked.expect),
            kill_at_s=kill_at_s,
        )
        for setting in settings
    )
    plan = bench.Plan(requests, matrix.turns(len(settings), repeat), asked.seed or 0)
    trials = bench.check(plan)
    title, command = trials[0].graph.name, shlex.join(["minirt", *sys.argv[1:]])
    comparison = bench.nothing_run(plan, repeat, title, command)
    notes = dict.fromkeys(note for trial in trials for note in trial.notes)
    sinks = trials[0].treatments
    told = (*notes, *described(sinks), *with_peers.notes)
    versions = {**comparison.versions, **with_peers.versions}
    return plan, replace(comparison, notes=told, sinks=sinks, versions=versions)


def _with_peers(asked: _Asked, settings: Sequence[Setting]) -> Beside:
    from minirt.laboratory.peer import Beside, beside

    if asked.peers is None:
        return Beside(tuple(settings))
    from minirt.laboratory.peers import find_peer

    names = dict.fromkeys(name.strip() for name in asked.peers.split(","))
    return beside(settings, [find_peer(n) for n in names], asked.workload, asked.kill is not None)


def _defaults(workload: str | None) -> Defaults:
    from minirt.laboratory.workload import Defaults
    from minirt.laboratory.workloads import find_workload

    return Defaults() if workload is None else find_workload(workload).defaults


def _factors(asked: _Asked, defaults: Defaults) -> list[Factor]:
    """Those that were given, and those of the workload whose keys were not."""
    from minirt.laboratory.matrix import Factor, split_factor
    from minirt.laboratory.trial import resolve

    found = []
    for key, values in map(split_factor, asked.sets):
        full, belongs = resolve(key, asked.workload)
        found.append(Factor(full, values, belongs))
    given = {factor.key for factor in found}
    for key, values in defaults.factors:
        full, belongs = resolve(key, asked.workload)
        if full not in given:
            found.append(Factor(full, values, belongs))
    return found


def run_plan(plan: Plan, comparison: Comparison) -> Comparison:
    """The comparison with all runs that were made; progress goes to standard error."""
    from minirt.cli.live_line import LiveLine
    from minirt.cli.progress import time_left
    from minirt.laboratory import bench

    line, runs, total = LiveLine(sys.stderr), list[Any](), len(plan.turns)
    line.say(f"{total} runs, about {time_left(plan.run_s * total)}")

    def on_run(run: Run) -> None:
        runs.append(run)
        label = comparison.labels[run.setting]
        line.say(f"  run {len(runs)} of {total}, {label}: {_outcome(run)}")

    def progress(done: int, run_s: float, left_s: float) -> None:
        label = comparison.labels[plan.turns[done].setting]
        line.update(f"run {done + 1} of {total}, {label}, {run_s:.0f} s; {time_left(left_s)} left")

    with _interrupted_by_sigterm():
        try:
            complete = bench.make_runs(plan, on_run, progress)
        finally:
            line.close()
    return replace(comparison, runs=tuple(runs), complete=complete)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM does as Ctrl-C does: what was measured is written."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _outcome(run: Run) -> str:
    from minirt.cli.tables import in_one_line

    if run.ended == "failed":
        return f"failed: {in_one_line(run.error)}"
    rate = run.sink_records / run.measured_s if run.measured_s else 0.0
    words = f"{len(run.completed)} checkpoints, {rate:,.0f} records/s"
    if run.verification.verdict != "not verified":
        words += f", verification {run.verification.verdict}"
    return f"{words}, interrupted" if run.ended == "interrupted" else words


def _refuse_beside_from(given: dict[str, Any]) -> None:
    names = {
        "job": "JOB.PY",
        "set_": "--set",
        **{
            name: "--" + name.replace("_", "-")
            for name in (
                *("workload", "modes", "seconds", "repeat", "kill"),
                *("parallelism", "latency_from", "seed", "peers", "expect"),
            )
        },
    }
    for name, flag in names.items():
        if given[name] is not None and given[name] != []:
            raise ConfigurationError(f"{flag} has no effect with --from, which runs nothing")


def _draw_again(file: str, outputs: _Outputs) -> None:
    from minirt.laboratory.measured import read_json

    comparison = read_json(Path(file))
    outputs.check()
    if outputs.json is not None:
        raise ConfigurationError("--json has no effect with --from, which runs nothing")
    _report(comparison, outputs)


def _report(comparison: Comparison, outputs: _Outputs) -> None:
    """Print the table and the findings, and write what was asked for."""
    from minirt.cli.tables import print_table
    from minirt.laboratory.findings import findings, table

    if outputs.json is not None:
        from minirt.laboratory.measured import to_json

        Path(outputs.json).write_text(to_json(comparison), encoding="utf-8")
    columns, rows = table(comparison)
    print_table(comparison.title, ("setting", *columns), rows)
    typer.echo()
    for finding in findings(comparison):
        typer.echo(f"* {finding}")
    if outputs.csv is not None:
        from minirt.laboratory.export import write_csv

        write_csv(comparison, Path(outputs.csv))
    if outputs.drawn:
        from minirt.laboratory.report import write_html, write_svg

        if outputs.svg is not None:
            write_svg(comparison, Path(outputs.svg))
        if outputs.html is not None:
            write_html(comparison, Path(outputs.html))
            typer.echo(f"\nreport: {outputs.html}")
