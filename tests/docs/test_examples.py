"""Every example runs as a user runs it, and prints what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 80
LONGER = {"paced_mode": 300}
"""A whole family of checkpoints, as another package would have it."""

NEED_SPARK = {"spark_verdict"}

PRINTED = {
    "word_count": """
        4 the
        2 and
        2 cat
        2 dog
        2 sleeps
        1 too
    """,
    "sessions": """
        ann: 240 s, home > search > shop
        ann: 0 s, home
        bob: 0 s, home
        bob: 0 s, home
    """,
    "bad_and_late": """
        good: [1, 2, 4, 5]
        late: [6]
        bad:  ['{"time": 9000, "value": 3']
    """,
    "enrich": """
        Ann ordered milk
        Ann ordered tea
        Bob ordered cup
        customer 3 is unknown, ordered pot
    """,
    "crash_and_recover": """
        killed one worker of 4
        finished after 1 restart
        results: 3000 of 3000
        repeated: 0
        last sum of key 1: 643071 expected: 643071
    """,
    "upgrade_with_savepoint": """
        version 1 stopped
        version 2 finished
        results: 2000 of 2000 by versions [1, 2]
        last sum of key 1: 399400 expected: 399400
    """,
    "latest_watermark": """
        regenerated: forgotten
        from state:  known
        restored:    known
    """,
    "spark_verdict": """
        expected               201
        output                 201
        lost                     0
        duplicated               0
        unexpected               0
        verdict                 ok
    """,
    "custom_source": """
        250 errors, the first one: line 0
    """,
    "custom_sink": """
        1000 1000 499500
    """,
    "impatient_mode": """
        8 runs: 0 records lost, 0 duplicated
        records were stored in flight: True
    """,
    "lazy_mode": """
        8 runs: 0 records lost, 0 duplicated
    """,
    "paced_mode": """
        8 runs: 0 records lost, 0 duplicated
    """,
}


def test_every_example_is_run_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTED)


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.spark if name in NEED_SPARK else ()) for name in PRINTED],
)
def test_an_example_prints_what_it_should(name):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        capture_output=True,
        text=True,
        timeout=300 if name in NEED_SPARK else 120,
    )
    assert (ran.returncode, _lines(ran.stdout)) == (0, _lines(PRINTED[name])), ran.stderr


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_is_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < LONGER.get(name, LINES_MAX)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]
