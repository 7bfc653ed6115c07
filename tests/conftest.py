"""Settings of all tests: how many examples hypothesis tries, by the variable HYPOTHESIS_PROFILE."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests import spark_classes, warm_processes
from tests.campaigns import FACTOR
from tests.runtime.processes import started_by

pytest.register_assert_rewrite("tests.contracts")

# Else each process that a test starts compiles all of minirt.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The fixtures that property tests use are folders and objects without state.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}

settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=30, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell lets what it starts in the background ignore Ctrl-C, which programs that tests interrupt inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# And `nohup` lets it ignore the end of the terminal.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


_NEW_OBJECTS = 20_000
"""After so many the collector looks for cycles among them."""


@pytest.fixture(scope="session", autouse=True)
def _registry() -> Iterator[None]:
    """Jobs of tests are not among those of the user. The path is short, as sockets want it."""
    folder = tempfile.mkdtemp(prefix="minirt-tests-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _processes() -> Iterator[None]:
    with warm_processes.warm_processes():
        yield


@pytest.fixture
def cold_starts() -> Iterator[None]:
    """Interpreters start as they do for users: for tests of what happens then."""
    with warm_processes.cold_starts():
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked as soak takes long, and is like what stays: `make soak` runs it.

    Those with Spark come last: by then another part has written down its classes.
    """
    items.sort(key=_needs_spark)
    if FACTOR > 1 or "::" in " ".join(config.args):  # Who names a test wants it.
        return
    left = [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _needs_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _needs_spark(item):
        spark_classes.use()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: looking for cycles in it again and again takes a tenth of the time.

    And to look for others less often saves a thirtieth: few of what tests leave are in cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


@pytest.fixture(scope="module", autouse=True)
def _loaded_since() -> Iterator[None]:
    """Likewise what a module has loaded: the contract of sinks looks for cycles after each test."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The registry of jobs, one of the test's own."""
    short = tempfile.mkdtemp(prefix="jobs-")  # Paths of sockets must be short.
    monkeypatch.setenv("XDG_RUNTIME_DIR", short)
    yield Path(short) / "minirt" / "jobs"
    shutil.rmtree(short)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A program that a failed test has started would run on beside all the others."""
    before = started_by(os.getpid())
    try:
        yield
    except BaseException:
        for pid in started_by(os.getpid()) - before:
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):
                started = psutil.Process(pid)
                if started.cmdline()[0] == sys.executable:  # A server or a JVM serves others, too.
                    for process in [*started.children(recursive=True), started]:
                        process.kill()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports travel between processes, which lone surrogates in what a test has logged would end."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
