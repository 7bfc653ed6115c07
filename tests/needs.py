"""What a machine may lack. A test that needs it is skipped, and fails where CI has installed it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
SERVICES = ROOT / ".services"
"""What `.ci/install-services` has installed."""


def lacks(what: str, reason: str) -> NoReturn:
    """Skips the test. Fails it where TESTS_MUST_HAVE, names with commas, says that `what` is there."""
    if what in os.environ.get("TESTS_MUST_HAVE", "").split(","):
        pytest.fail(f"this machine should have {what}, but: {reason}")
    pytest.skip(reason)


def program(what: str, name: str) -> str:
    """The path of a program of `.services`, or of the machine's."""
    for folder in ("bin", "node_modules/.bin"):
        if (found := SERVICES / folder / name).exists():
            return str(found)
    return shutil.which(name) or lacks(what, f"{name} is missing: .ci/install-services installs it")
