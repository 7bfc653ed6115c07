"""The plugin for pytest, as the tests of a user's project meet it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from minirt import pytest_plugin

ROOT = Path(__file__).parents[2]
TESTS = """
import minirt as rt


def totals(numbers):
    return numbers.key_by(lambda n: n % 2).reduce(lambda a, b: a + b, uid="totals")


def by_minute(clicks, others):
    return clicks.union(others).key_by(lambda at: 0).window(rt.Tumbling("1min")).reduce(max)


def forgetful(numbers):
    seen = []
    return numbers.map(lambda n: seen.append(n) or len(seen))


def test_right(run_stream):
    assert sorted(run_stream(totals, [1, 2, 3, 4])) == [1, 2, 4, 6]


def test_two_inputs(run_stream):
    watermarks = rt.Watermarks.monotonous(timestamp=lambda at: at)
    results = run_stream(by_minute, [1, 59_000], [61_000], watermarks=watermarks, mode="unaligned")
    assert sorted(results) == [59_000, 61_000]


def test_state_that_no_checkpoint_has(run_stream):
    assert run_stream(forgetful, range(40)) == [*range(1, 41)]
"""


def run(folder: Path, *options: str) -> str:
    (folder / "test_streams.py").write_text(TESTS)
    plugin = () if installed() else ("-p", pytest_plugin.__name__)
    quiet = "-q", "-rA", "--tb=no", "-p", "no:cacheprovider"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, *plugin, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def installed() -> bool:
    """Whether the minirt that is installed here has the plugin already."""
    from importlib.metadata import entry_points

    return any(one.value == pytest_plugin.__name__ for one in entry_points(group="pytest11"))


def test_a_test_is_run_inline_and_with_each_seed(tmp_path: Path) -> None:
    output = run(tmp_path, "--minirt-seeds", "3", "-k", "right or two")
    assert "8 passed" in output, output
    for name in ("right", "two_inputs"):
        for run_of in ("inline", "seed-0", "seed-1", "seed-2"):
            assert f"PASSED test_streams.py::test_{name}[{run_of}]" in output


def test_seeds_find_what_a_crash_loses(tmp_path: Path) -> None:
    output = run(tmp_path, "--minirt-seeds", "6", "-k", "no_checkpoint")
    assert "PASSED test_streams.py::test_state_that_no_checkpoint_has[inline]" in output
    assert "FAILED test_streams.py::test_state_that_no_checkpoint_has[seed-" in output


def test_a_number_of_seeds_that_would_leave_the_simulations_out_is_refused(tmp_path: Path) -> None:
    for number in ("-1", "many"):
        output = run(tmp_path, f"--minirt-seeds={number}")
        assert f"--minirt-seeds: must be a whole number, 0 or more, got '{number}'" in output
        assert "passed" not in output


def test_the_package_names_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"minirt": pytest_plugin.__name__}


@pytest.mark.usefixtures("cold_starts")
def test_pytest_loads_minirt_only_for_tests_that_need_it() -> None:
    code = f"import sys, {pytest_plugin.__name__}; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr
