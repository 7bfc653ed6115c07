"""`python -m benchmarks.throughput`: minirt against systems that are made up here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import throughput
from benchmarks.systems import MINIRT, BenchmarkError, System, measure
from benchmarks.throughput import CASES
from benchmarks.workload import Work, expected, record_unit

_SMALL = {
    "keyed-sum-columns": 4_000,
    "keyed-sum-columns-1m": 2_000_000,
    "keyed-sum-columns-str": 20_000,
    "keyed-sum-rows": 4_000,
    "keyed-pass-columns": 4_000,
    "filter-project": 200_000,
    "tumbling-count": 2_000_000,
}

_ROW = {
    "case": str,
    "system": str,
    "records": int,
    "seconds": float,
    "records_per_s": float,
    "cpu_s_per_million": float,
    "peak_rss_bytes": int,
    "checkpoints": int,
}

_PROGRAM = """
import sys, time
from benchmarks.workload import Check, Tally, Work, announce, expected, report
work = Work.parse(sys.argv[1:])
announce()
right = expected(work)
tally = Tally(right.count + {missing}, right.checksum)
{end}
report(tally, time.monotonic(), 7)
"""


def made_up(
    missing: int = 0, end: str = "", needs: tuple[Path, ...] = (), name: str = "made-up"
) -> System:
    """A system that computes nothing, but knows what would be right."""
    program = _PROGRAM.format(missing=missing, end=end)
    return System(name, frozenset(("keyed-sum",)), (sys.executable, "-c", program), needs)


def call(
    monkeypatch: pytest.MonkeyPatch, peer: System, *arguments: str, real: bool = False
) -> None:
    """With a peer that is made up, and unless `real` with a minirt that is."""
    monkeypatch.setattr(throughput, "PEERS", {peer.name: peer})
    if not real:
        monkeypatch.setattr(throughput, "MINIRT", made_up(name="minirt"))
    throughput.main(arguments)


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.processes
@pytest.mark.parametrize("case", _SMALL)
def test_results_of_minirt_are_right_in_each_case(case: str) -> None:
    [work] = CASES[case].variants.values()
    given = Work(work.work, _SMALL[case], min(work.keys, _SMALL[case] // 2))
    assert measure(MINIRT, given).records == _SMALL[case]


@pytest.mark.processes
@pytest.mark.parametrize("parallelism", [1, 4])
def test_results_do_not_depend_on_parallelism(parallelism: int) -> None:
    measure(MINIRT, Work("tumbling-count", 1_000_000, parallelism=parallelism))


@pytest.mark.processes
def test_latencies_of_all_records_after_the_warm_up_are_counted() -> None:
    run = measure(MINIRT, Work("latency", 6_000, records_per_s=2_000, buffer_timeout_ms=5))
    assert sum(run.latencies.values()) == 2_000
    assert 0 < run.latency_ms(0.5) <= run.latency_ms(0.99) <= run.latency_ms(0.999)


@pytest.mark.processes
def test_json_has_a_row_a_run_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "rows.json"
    options = ["--records", "4000", "--repetitions", "2", "--peers", "made-up"]
    call(monkeypatch, made_up(), "keyed-sum-columns", *options, "--json", str(target), real=True)
    found = document(target)
    assert list(found) == ["rows"]
    assert [row["system"] for row in found["rows"]] == ["minirt", "made-up"] * 2
    for row in found["rows"]:
        assert {name: type(value) for name, value in row.items()} == _ROW
        assert (row["case"], row["records"]) == ("keyed-sum-columns", 4000)
    assert found["rows"][1]["checkpoints"] == 7


@pytest.mark.processes
def test_rows_of_variants_say_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "rows.json"
    options = ["--records", "4000", "--repetitions", "1", "--json", str(target)]
    call(monkeypatch, made_up(), "checkpoint-cost", *options, real=True)
    rows = document(target)["rows"]
    assert [row["variant"] for row in rows] == ["every second", "none"]
    assert rows[1]["checkpoints"] == 0


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (made_up(needs=(Path("/nothing"),)), "is not installed"),
        (System("made-up", frozenset(), ()), "has no such job"),
    ],
)
def test_what_cannot_run_is_skipped_and_said_so(
    peer: System,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "rows.json"
    options = ["--records", "4000", "--repetitions", "1", "--peers", "made-up"]
    call(monkeypatch, peer, "keyed-sum-columns", *options, "--json", str(target))
    found = document(target)
    assert [row["system"] for row in found["rows"]] == ["minirt"]
    [skipped] = found["skipped"]
    assert (skipped["case"], skipped["system"]) == ("keyed-sum-columns", "made-up")
    assert reason in skipped["reason"]
    assert reason in capsys.readouterr().err


def test_wrong_results_are_refused() -> None:
    with pytest.raises(BenchmarkError, match=r"wrong results of made-up.*count=999.*count=1000"):
        measure(made_up(missing=-1), Work("keyed-sum", 4000))


def test_what_a_system_wrote_before_it_failed_is_shown() -> None:
    with pytest.raises(BenchmarkError, match="no more room"):
        measure(made_up(end="sys.exit('no more room')"), Work("keyed-sum", 4000))


def test_a_system_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "rows.json"
    options = ["--records", "4000", "--repetitions", "2", "--peers", "made-up"]
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, made_up(1), "keyed-sum-columns", *options, "--json", str(target))
    assert stopped.value.code == 1
    assert [row["system"] for row in document(target)["rows"]] == ["minirt", "minirt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["keyed-sum"], "unknown case 'keyed-sum'"),
        (["--peers", "storm"], "unknown peer 'storm'"),
        (["--repetitions", "0"], "--repetitions"),
        (["keyed-sum-columns", "--records", "4001"], "multiple of 2000"),
        (["keyed-sum-columns", "--records", "0"], "multiple of 2000"),
        (["latency", "--records", "100000"], "above 100000"),
    ],
)
def test_what_cannot_work_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        throughput.main(arguments)
    assert message in capsys.readouterr().err


def test_default_records_of_each_case_divide_evenly() -> None:
    for case in CASES.values():
        for work in case.variants.values():
            assert work.records % record_unit(work.work, work.keys) == 0


def test_arguments_of_a_work_give_the_work() -> None:
    work = Work("latency", 10, records_per_s=5, mode="unaligned", storage="/there")
    assert Work.parse([*work.arguments(), "rest_port=0"]) == work


@pytest.mark.parametrize("work", ["keyed-sum", "filter-project", "tumbling-count", "keyed-pass"])
def test_what_is_expected_is_what_plain_python_counts(work: str) -> None:
    given = Work(work, 2_000_000, keys=10)
    numbers = range(given.records)
    if work == "keyed-sum":
        counted = (10, sum(range(10)))
    elif work == "keyed-pass":
        counted = (len(numbers), sum(numbers))
    elif work == "filter-project":
        computed = [(n + 2) + (n + 3) + 2 * (n + 4) for n in numbers if not n & 1]
        counted = (len(computed), sum(computed))
    else:
        results = [(key, window, 100_000) for key in range(10) for window in range(2)]
        counted = (len(results), sum((k + 1) * (w + 1) * count for k, w, count in results))
    check = expected(given)
    assert (check.count, check.checksum) == counted
