"""A plugin of pytest: the CPU seconds of each test file, with those of all processes that it has started.

A machine that does other work as well makes tests slower, but this changes little. Run it with
`python -m pytest -p tests.cpu_seconds ...`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_ROWS = 40
_BETWEEN = "between the tests"
_by_file: defaultdict[str, float] = defaultdict(float)
_by_test: defaultdict[str, float] = defaultdict(float)
_until = 0.0


def _seconds() -> float:
    """What this process and all that descend from it have used; what has ended counts with its parent."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(folder.name)
            parents[pid] = int(fields[1])
            ticks[pid] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        if not more:
            return sum(ticks.get(pid, 0) for pid in mine) / _TICKS
        mine |= more


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _until
    before = _seconds()
    _by_file[_BETWEEN] += before - _until
    result = yield
    _until = _seconds()
    file = item.nodeid.partition("::")[0]
    _by_file[file] += _until - before
    _by_test[item.nodeid] += _until - before
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"{_seconds():.0f} CPU seconds")
    for spent in (_by_file, _by_test):
        most = sorted(spent.items(), key=lambda entry: -entry[1])[:_ROWS]
        for name, seconds in most:
            terminalreporter.write_line(f"{seconds:8.1f} {name}")
