"""How much a job sustains, beside other systems: `python -m benchmarks.throughput CASE... --peers flink`.

minirt and each peer run in turn, again and again, on the same work. Every run checks its results.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.measure import print_rows
from benchmarks.systems import MINIRT, PEERS, BenchmarkError, Run, System, measure
from benchmarks.workload import WARM_UP_S, Work, record_unit

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What is run under one name: one work, or several that are compared, by the name of the variant."""

    variants: Mapping[str | None, Work]


def _one(work: str, records: int, **settings: Any) -> Case:
    return Case({None: Work(work, records, **settings)})


_PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}

_SUM = Work("keyed-sum", 50_000_000)
_LATENCY_S = 10
"""How long a run at a given pace takes."""


def _paced(records_per_s: int, buffer_timeout_ms: int) -> tuple[str, Work]:
    """A variant, with its name."""
    work = Work("latency", _LATENCY_S * records_per_s, records_per_s=records_per_s)
    name = f"{records_per_s:,}/s, buffer timeout {buffer_timeout_ms} ms"
    return name, replace(work, buffer_timeout_ms=buffer_timeout_ms)


def _wide(work: Work) -> Case:
    """The same work at one parallelism after the other."""
    return Case({f"parallelism {n}": replace(work, parallelism=n) for n in (1, 2, 4, 8, 16)})


CASES: Mapping[str, Case] = {
    "keyed-sum-columns": _one("keyed-sum", 50_000_000),
    "keyed-sum-columns-1m": _one("keyed-sum", 20_000_000, keys=1_000_000),
    "keyed-sum-columns-str": _one("keyed-sum-str", 20_000_000, keys=100_000),
    "keyed-sum-rows": _one("keyed-sum-rows", 10_000_000),
    "keyed-pass-columns": _one("keyed-pass", 50_000_000),
    "filter-project": _one("filter-project", 100_000_000),
    "tumbling-count": _one("tumbling-count", 50_000_000),
    "interval-join": _one("interval-join", 20_000_000, keys=1_000_000),
    "array-updates": _one("keyed-sum", 20_000_000, keys=5_000_000),
    "latency": Case(dict(_paced(pace, ms) for pace in (50_000, 1_000) for ms in (5, 1, 0))),
    "checkpoint-cost": Case({"every second": _SUM, "none": replace(_SUM, checkpoint_ms=0)}),
    "scaling": _wide(_SUM),
    "scaling-rows": _wide(Work("keyed-sum-rows", 10_000_000)),
}


class Comparison:
    """Runs cases on systems in turn, and keeps what comes out."""

    def __init__(self, systems: Sequence[System]) -> None:
        self._systems = systems
        self.rows: list[Row] = []
        self.skipped: list[Row] = []
        self.failures = 0

    def run(self, name: str, case: Case, repetitions: int) -> None:
        """One row for each run. A system that fails is reported; the others go on."""
        able = [system for system in self._systems if self._can_run(name, case, system)]
        for repetition in range(repetitions):
            for variant, work in case.variants.items():
                for system in able:
                    _progress(f"{_title(name, variant)}: {system.name}, run {repetition + 1}")
                    try:
                        run = measure(system, system.given(work))
                    except BenchmarkError as error:
                        self.failures += 1
                        _progress(f"benchmarks.throughput: {error}")
                    else:
                        _progress(f"  {run.records_per_s / 1e6:.3g} M records/s")
                        self.rows.append(_row(name, variant, system, run))

    def _can_run(self, name: str, case: Case, system: System) -> bool:
        reasons = (system.skipped(work.work) for work in case.variants.values())
        reason = next(filter(None, reasons), None)
        if reason is not None:
            self.skipped.append({"case": name, "system": system.name, "reason": reason})
            _progress(f"{name}: skipped: {reason}")
        return reason is None


def _title(case: str, variant: str | None) -> str:
    return f"{case} ({variant})" if variant else case


def _row(case: str, variant: str | None, system: System, run: Run) -> Row:
    row: Row = {
        "case": case,
        **({"variant": variant} if variant else {}),
        "system": system.name,
        "records": run.records,
        "seconds": run.seconds,
        "records_per_s": run.records_per_s,
        "cpu_s_per_million": run.cpu_s_per_million,
        "peak_rss_bytes": run.peak_rss_bytes,
        "checkpoints": run.checkpoints,
    }
    if run.latencies:
        row |= {name: run.latency_ms(share) for name, share in _PERCENTILES.items()}
    return row


def summary(rows: Iterable[Row]) -> list[str]:
    """Lines of medians, with the least and the largest of the runs, for each case, variant and system."""
    groups: dict[tuple[str, str | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["case"], row.get("variant"), row["system"]), []).append(row)
    lines = []
    for (case, variant, system), own in groups.items():
        ours = groups.get((case, variant, MINIRT.name))
        shown = [
            f"{_title(case, variant)}: {system}",
            f"{_spread(own, 'records_per_s', 1e-6)} M records/s",
            f"{_spread(own, 'cpu_s_per_million')} CPU s/M",
            f"{_median(own, 'peak_rss_bytes') / 1e6:,.0f} MB",
            f"{_median(own, 'checkpoints'):.0f} checkpoints",
        ]
        for name in _PERCENTILES if _is_paced(own) else ():
            shown.append(f"{name.removesuffix('_ms')} {_spread(own, name)} ms")
        if ours and system != MINIRT.name and not _is_paced(own):
            ratio = _median(ours, "records_per_s") / _median(own, "records_per_s")
            shown.append(f"minirt is {ratio:.2f} x")
        lines.append("  ".join(shown))
    return lines + _between_variants(groups)


def _between_variants(groups: Mapping[tuple[str, str | None, str], list[Row]]) -> list[str]:
    """The first variant of a case against the second, unless the pace is given."""
    lines = []
    for (case, variant, system), own in groups.items():
        names = list(CASES[case].variants)
        other = groups.get((case, names[-1], system), own)
        if variant != names[0] or other is own or _is_paced(own):
            continue
        ratio = _median(own, "records_per_s") / _median(other, "records_per_s")
        lines.append(f"{case}: {system}, {names[0]} is {ratio:.3f} x {names[-1]}")
    return lines


def _is_paced(rows: Sequence[Row]) -> bool:
    """Whether all systems are given the same pace, so that rates say nothing."""
    return "p50_ms" in rows[0]


def _median(rows: Sequence[Row], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def _spread(rows: Sequence[Row], name: str, unit: float = 1.0) -> str:
    values = [row[name] * unit for row in rows]
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _scaled(name: str, case: Case, records: int) -> Case:
    """With another number of records. Raises ValueError if the case cannot have it."""
    for work in case.variants.values():
        unit = record_unit(work.work, work.keys)
        if records < 1 or records % unit:
            raise ValueError(f"--records of {name} must be a multiple of {unit}, got {records}")
        warming_up = work.records_per_s * WARM_UP_S
        if warming_up and records <= warming_up:
            raise ValueError(
                f"--records of {name} must be above {warming_up}: those of the first {WARM_UP_S} s "
                "are not measured"
            )
    return Case({key: replace(work, records=records) for key, work in case.variants.items()})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="any of: " + ", ".join(CASES))
    parser.add_argument("--peers", default="", help="with commas, any of: " + ", ".join(PEERS))
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each system")
    parser.add_argument("--records", type=int, help="how many records a run processes")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args(arguments)
    peers = [name for name in options.peers.split(",") if name]
    for kind, names, known in ("case", options.cases, CASES), ("peer", peers, PEERS):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"unknown {kind} {unknown[0]!r}; there are: {', '.join(known)}")
    if options.repetitions < 1:
        parser.error(f"--repetitions must be at least 1, got {options.repetitions}")
    chosen = {name: CASES[name] for name in options.cases or CASES}
    if options.records is not None:
        try:
            chosen = {name: _scaled(name, case, options.records) for name, case in chosen.items()}
        except ValueError as error:
            parser.error(str(error))
    comparison = Comparison([MINIRT, *(PEERS[name] for name in peers)])
    for name, case in chosen.items():
        comparison.run(name, case, options.repetitions)
    if options.json:
        print_rows(comparison.rows, options.json, comparison.skipped)
    if options.json != "-":
        print("\n".join(summary(comparison.rows)))
    if comparison.failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
