"""A plugin of pytest: the CPU seconds of each test file, with those of all processes that it has started.

A machine that does other work as well makes tests slower, but this changes little. Run it with
`python -m pytest -p tests.cpu_seconds ...`. With `-n`, it adds up what the workers of xdist report.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.processes import started_by

_TICKS = os.sysconf("SC_CLK_TCK")
_ROWS = 40
_BETWEEN = "between the tests"
_KEY = "cpu_seconds"
_by_file: defaultdict[str, float] = defaultdict(float)
_by_test: defaultdict[str, float] = defaultdict(float)
_until = 0.0


def _seconds() -> float:
    """What this process and all that descend from it have used; what has ended counts with its parent."""
    ticks, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        pending += started_by(pid)
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


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


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended; one that crashed tells nothing."""
    output = getattr(node, "workeroutput", {})
    for total, part in zip((_by_file, _by_test), output.get(_KEY, ()), strict=False):
        for name, seconds in part.items():
            total[name] += seconds


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY] = (dict(_by_file), dict(_by_test))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"{_seconds():.0f} CPU seconds")
    for spent in (_by_file, _by_test):
        most = sorted(spent.items(), key=lambda entry: -entry[1])[:_ROWS]
        for name, seconds in most:
            terminalreporter.write_line(f"{seconds:8.1f} {name}")
