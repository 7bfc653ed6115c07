"""Which kernels a process uses: what there is, what was asked for, and who loads numba."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.kernels import choice, on_numpy
from minirt.kernels.choice import choose_kernels, chosen, kernels
from tests.warm_processes import cold_starts

TABLE = pa.table({"k": [1, 2, 1], "v": [1, 2, 3]})
COMPILED = "minirt.kernels.compiled"


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, COMPILED, None)


def test_numpy_does_the_work_until_a_job_chooses() -> None:
    told = run("from minirt.kernels.choice import chosen; print(chosen().name)")
    assert told == "numpy"


def test_the_fastest_is_taken_where_it_is_there() -> None:
    assert choose_kernels("auto").name == "numba"
    assert str(chosen()).startswith("numba 0.")
    assert kernels().mix.__module__ == COMPILED


def test_numpy_can_be_asked_for() -> None:
    choose_kernels("numba")
    choose_kernels("numpy")
    assert kernels() is on_numpy
    assert "no numba" not in str(chosen())


@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize("installed", [True, False])
def test_without_numba_numpy_is_taken_and_the_reason_told(
    installed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has installed it in vain is told without asking."""
    monkeypatch.setattr(choice, "find_spec", lambda name: object() if installed else None)
    assert choose_kernels("auto").kernels is on_numpy
    assert "no numba" in str(chosen())
    assert ("its kernels cannot be used" in caplog.text) == installed


@pytest.mark.usefixtures("without_numba")
def test_numba_that_is_asked_for_and_missing_is_refused() -> None:
    env = job()
    with pytest.raises(rt.ConfigurationError, match="'minirt\\[fast\\]' installs numba"):
        env.execute(runner="inline", options=rt.Options(kernels="numba"))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(rt.ConfigurationError, match="kernels must be one of auto, numba, numpy"):
        rt.Options(kernels="fortran")  # type: ignore[arg-type]


@pytest.mark.parametrize("wanted", ["auto", "numpy"])
def test_where_compiled_code_cannot_be_kept_a_job_runs_with_numpy(wanted: str) -> None:
    """A folder that nobody can write to, and no other place for the cache."""
    only = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "HOME": ""}
    code = f"from minirt.kernels.choice import choose_kernels\nprint(choose_kernels({wanted!r}))"
    told = run(code, **only, NUMBA_CACHE_DIR="/proc/none")
    assert told.startswith("numpy ")
    assert ("no locator available" in told) == (wanted == "auto")


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (
            "env.source(rt.CollectionSource([1, 2])).key_by(lambda n: n % 2).reduce(lambda a, b: b)",
            False,
        ),
        ("env.source(Table()).filter(pc.field('k') > 1)", False),
        ("env.source(Table()).key_by('k').aggregate(rt.Sum('v'))", True),
        ("env.source(Table()).key_by('k').map_batches(lambda b: b, 'columns')", True),
    ],
)
def test_only_a_job_with_keys_in_columns_loads_numba(stream: str, expected: bool) -> None:
    code = (
        "import sys, minirt as rt, pyarrow as pa, pyarrow.compute as pc\n"
        "Table = lambda: rt.CollectionSource(pa.table({'k': [1, 2, 1], 'v': [1, 2, 3]}))\n"
        "env = rt.Environment(parallelism=2)\n"
        f"{stream}.sink(rt.CollectSink())\n"
        "env.execute(runner='inline')\n"
        "print('numba' in sys.modules)"
    )
    assert run(code) == str(expected)


@pytest.mark.processes
@pytest.mark.parametrize(("wanted", "used"), [("auto", "numba"), ("numpy", "numpy")])
def test_workers_use_what_the_options_say(wanted: Any, used: str) -> None:
    env, out = rt.Environment("j", parallelism=2), rt.CollectSink()
    sums = (
        env.source(rt.CollectionSource(TABLE))
        .key_by("k")
        .aggregate(rt.Sum("v", "total"), emit="end")
    )
    sums.map(lambda record: {**record, "by": chosen().name}).sink(out)
    env.execute(options=rt.Options(kernels=wanted))
    assert sorted((row["k"], row["total"], row["by"]) for row in out.rows) == [
        (1, 4, used),
        (2, 2, used),
    ]


@pytest.mark.soak
@pytest.mark.usefixtures("cold_starts")
def test_processes_may_compile_at_the_same_time(tmp_path: Path) -> None:
    code = (
        "from minirt.kernels.choice import choose_kernels\nimport numpy as np\n"
        "print(choose_kernels('numba').kernels.mix(np.arange(3, dtype=np.uint64), 1).tolist())"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "HOME": ""}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    told = {process.communicate(timeout=120)[0] for process in running}
    assert len(told) == 1
    assert b"[" in told.pop()
    assert any(tmp_path.rglob("*.nbc"))


def run(code: str, **variables: str) -> str:
    """What a fresh interpreter prints to standard output; it fails if it ends with an error."""
    with cold_starts():
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def job() -> rt.Environment:
    env = rt.Environment()
    env.source(rt.CollectionSource(TABLE)).key_by("k").aggregate(rt.Sum("v")).sink(rt.CollectSink())
    return env
