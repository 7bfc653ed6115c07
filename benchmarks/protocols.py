"""What each checkpoint protocol does, and costs: `python -m benchmarks.protocols`.

Every mode runs the same jobs through the laboratory of `minirt compare`: at rising rates up to the highest
that it sustains, with a SIGKILL, and under backpressure with one subtask slower than the others. Stages
come in turn, those first that tell most; with `--minutes`, one for which there is no time is left out, and
the report says so. `--docs` does all that, in 12 minutes, for docs/comparing-protocols.md.

A rate is *sustained* if the run came to its end with a checkpoint, its output was right, and in its last
third half of the results were no later than `Case.late_s` behind the moment when they were due.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.protocols_report import sustained_by, write_docs, write_report
from minirt.cli.compare import run_plan
from minirt.errors import ConfigurationError
from minirt.laboratory import bench, matrix
from minirt.laboratory.matrix import Choice, Setting
from minirt.laboratory.measured import Comparison, Run, read_json, to_json
from minirt.laboratory.peer import beside
from minirt.laboratory.peers import find_peer
from minirt.laboratory.trial import RunRequest
from minirt.laboratory.workloads import find_workload
from minirt.modes import MODES

WARM_UP_S = 0.5
KILL_EVERY_S = 5.0
KILL_RUN_S = 8.0
"""Long enough for one kill, and for what it costs to be seen."""
RUNGS = 5
GROWTH = 2.0
LAST_PART = 3
DOCS_MINUTES = 12.0


@dataclass(frozen=True)
class Case:
    """A job of the laboratory: a workload with parameters, and the first of its rising rates."""

    name: str
    workload: str
    parameters: tuple[tuple[str, str], ...] = ()
    rate_key: str | None = None
    """The parameter that sets the rate; None if the source gives all that there is room for."""
    first_rate: float = 0.0
    late_s: float = 1.0
    """How late half of the results may be: windows wait for their end."""

    def choices(self, rate: float) -> tuple[Choice, ...]:
        rates = () if self.rate_key is None else ((self.rate_key, f"{rate:g}"),)
        return tuple(Choice(key, value, "parameter") for key, value in (*self.parameters, *rates))


def _nexmark(query: str, late_s: float = 1.0) -> Case:
    parameters = (("query", query), ("window_s", "1"))
    return Case(query, "nexmark", parameters, "events_per_s", 50_000.0, late_s)


def _throttled(name: str, shape: str) -> Case:
    return Case(name, "throttled", (("shape", shape), ("record_ms", "0.1")))


CASES = {
    case.name: case
    for case in (
        _nexmark("q12", 2.0),
        Case("skewed-join", "skewed-join", (), "records_per_s", 5_000.0),
        _throttled("backpressure", "steady"),
        _throttled("one-slow", "one_slow"),
        _nexmark("q1"),
        _nexmark("q3"),
        _nexmark("q8", 2.0),
    )
}
"""In the order in which they are run."""

SINKS_FIRST = "uncoordinated_sinks_first"
PROTOCOLS: Mapping[str, tuple[str, tuple[Choice, ...]]] = {
    **{mode: (mode, ()) for mode in MODES},
    SINKS_FIRST: ("uncoordinated", (Choice("checkpointing.mode_options.stagger", "10ms"),)),
}
"""What is compared: each mode, by its name, and what one becomes with an option."""

DOCS_CASES = ("q12", "skewed-join", "backpressure", "one-slow")


@dataclass(frozen=True)
class Effort:
    protocols: tuple[str, ...]
    seconds: float
    repeat: int
    kills: bool
    peers: tuple[str, ...] = ()
    seed: int = 7
    rungs: int = RUNGS


@dataclass
class Campaign:
    """All stages, one comparison each; a stage begins only if its runs fit into the time that is left."""

    cases: Sequence[Case]
    effort: Effort
    keep: Callable[[str, Comparison], None]
    """Called with the name of each stage that was run."""
    until: float = float("inf")
    """By the monotonic clock."""
    left_out: list[str] = field(default_factory=list)
    run: Callable[[bench.Plan, Comparison], Comparison] = run_plan

    def __post_init__(self) -> None:
        paced = [case for case in self.cases if case.rate_key is not None]
        self._climbing = {case.name: list(self.effort.protocols) for case in paced}
        """The protocols that have sustained all rates so far."""
        self._sustained: dict[str, float] = {}
        """The highest rate that all have sustained."""

    def make(self) -> None:
        """The first rates, what has none, the kills, and then rate by rate in all cases.

        Raises ConfigurationError before anything runs for what one of the stages cannot do.
        """
        paced = [case for case in self.cases if case.rate_key is not None]
        for case in self.cases:
            kill = self.effort.kills and case in paced
            planned(case, case.name, self.effort.protocols, case.first_rate, self.effort, kill=kill)
        for case in paced:
            self._climb(case, 0)
        for case in self.cases:
            if case.rate_key is None:
                self._stage(case, case.name, self.effort.protocols, 0.0)
        if self.effort.kills:
            for case in paced:
                rate = self._sustained.get(case.name, case.first_rate / GROWTH)
                self._stage(
                    case, f"{case.name} with a kill", self.effort.protocols, rate, kill=True
                )
        for rung in range(1, self.effort.rungs):
            for case in paced:
                self._climb(case, rung)

    def _climb(self, case: Case, rung: int) -> None:
        climbing, rate = self._climbing[case.name], case.first_rate * GROWTH**rung
        if not climbing:
            return
        found = self._stage(case, f"{case.name} at {rate:,.0f} a second", climbing, rate)
        if found is None:
            return
        held = sustained_by(found, lambda run: sustains(run, case.late_s))
        self._climbing[case.name] = [name for name in climbing if held[name]]
        if len(self._climbing[case.name]) == len(self.effort.protocols):
            self._sustained[case.name] = rate

    def _stage(
        self, case: Case, name: str, protocols: Sequence[str], rate: float, *, kill: bool = False
    ) -> Comparison | None:
        plan, comparison = planned(case, name, protocols, rate, self.effort, kill=kill)
        if time.monotonic() + plan.run_s * len(plan.turns) > self.until:
            self.left_out.append(name)
            return None
        comparison = self.run(plan, comparison)
        self.keep(name, comparison)
        if not comparison.complete:
            raise KeyboardInterrupt
        return comparison


def planned(
    case: Case, name: str, protocols: Sequence[str], rate: float, effort: Effort, *, kill: bool
) -> tuple[bench.Plan, Comparison]:
    """One stage, whose settings have the names of protocols. Raises ConfigurationError."""
    chosen = [PROTOCOLS[protocol] for protocol in protocols]
    settings = [Setting(mode, None, (*own, *case.choices(rate))) for mode, own in chosen]
    with_peers = beside(settings, (), case.workload, kill)
    if case.rate_key is None and effort.peers:
        with_peers = beside(settings, [find_peer(p) for p in effort.peers], case.workload, kill)
    settings = list(with_peers.settings)
    seconds = max(effort.seconds, KILL_RUN_S) if kill else effort.seconds
    latency_from = find_workload(case.workload).latency_from
    requests = tuple(
        RunRequest(
            *(None, case.workload, setting, seconds, WARM_UP_S),
            *(KILL_EVERY_S if kill else None, latency_from, 0, ""),
        )
        for setting in settings
    )
    plan = bench.Plan(requests, matrix.turns(len(settings), effort.repeat), effort.seed)
    trials = bench.check(plan)
    command = shlex.join(["python", "-m", "benchmarks.protocols", *sys.argv[1:]])
    comparison = bench.nothing_run(plan, effort.repeat, name, command)
    notes = tuple(dict.fromkeys(note for trial in trials for note in trial.notes))
    labels = (*protocols, *comparison.labels[len(protocols) :])
    return plan, replace(comparison, labels=labels, notes=(*notes, *with_peers.notes))


def sustains(run: Run, late_s: float) -> bool:
    """The rule; see above."""
    late = run.one_series("latency p50")
    if not run.counts or not run.completed or run.verification.verdict != "passed" or late is None:
        return False
    since = run.measured_s * (1 - 1 / LAST_PART)
    last = [value for at, value in zip(late.at_s, late.values, strict=True) if at >= since]
    return bool(last) and statistics.median(last) <= late_s


def stored(folder: Path) -> Iterator[tuple[str, Comparison]]:
    """The comparisons that were kept in a folder, in the order in which they were made."""
    found = [read_json(path) for path in folder.glob("*.json")]
    for comparison in sorted(found, key=lambda one: one.started_at):
        yield comparison.title, comparison


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=[*CASES], help="all by default")
    parser.add_argument("--modes", nargs="+", choices=[*PROTOCOLS], default=[*PROTOCOLS])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a run is measured")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each mode in each stage")
    parser.add_argument(
        "--rungs", type=int, default=RUNGS, help="how many rates, each twice as high"
    )
    parser.add_argument("--no-kills", action="store_true", help="kill no worker")
    parser.add_argument(
        "--peers", nargs="+", help="flink, where no rate is set: see minirt compare"
    )
    parser.add_argument("--minutes", type=float, help="leave out what takes longer in all")
    parser.add_argument("--out", default="protocols", help="folder for runs, tables and plots")
    parser.add_argument("--from", dest="from_", help="run nothing: draw what a folder has")
    parser.add_argument(
        "--docs", action="store_true", help="one run of each, 12 minutes; written into the docs"
    )
    arguments = parser.parse_args()
    if arguments.docs:
        arguments.cases = arguments.cases or [*DOCS_CASES]
        arguments.minutes = arguments.minutes or DOCS_MINUTES
        arguments.repeat, arguments.seconds = 1, 4.0
    out = Path(arguments.from_ or arguments.out)
    left_out: list[str] = []
    if arguments.from_ is None:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.glob("*.json")):
            parser.error(f"{out} has runs already: name another folder with --out")
        left_out = _make(arguments, out)
    found = [*stored(out)]
    if not found:
        parser.error(f"{out} has no runs")
    late_s = {case.name: case.late_s for case in CASES.values()}
    text = write_report(found, left_out, out, lambda run, case: sustains(run, late_s[case]))
    print(text)
    if arguments.docs:
        write_docs(text, out, Path(__file__).parents[1] / "docs")


def _make(arguments: argparse.Namespace, out: Path) -> list[str]:
    effort = Effort(
        protocols=tuple(arguments.modes),
        seconds=arguments.seconds,
        repeat=arguments.repeat,
        kills=not arguments.no_kills,
        peers=tuple(arguments.peers or ()),
        rungs=arguments.rungs,
    )

    def keep(name: str, comparison: Comparison) -> None:
        file = name.replace(" ", "-").replace(",", "")
        (out / f"{file}.json").write_text(to_json(comparison))

    minutes = arguments.minutes
    until = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    cases = [CASES[name] for name in CASES if name in (arguments.cases or CASES)]
    campaign = Campaign(cases, effort, keep, until)
    try:
        campaign.make()
    except KeyboardInterrupt:
        campaign.left_out.append("all that came behind the interruption")
    except ConfigurationError as error:
        raise SystemExit(f"error: {error}") from error
    return campaign.left_out


if __name__ == "__main__":
    main()
