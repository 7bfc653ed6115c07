"""The code blocks of Markdown files, for the tests of documentation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```(?P<kind>\S*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_SLEEP = """
set -e -o pipefail
newest() { ls checkpoints/NAME/manifests 2>/dev/null | tail -1; }
sleep() {
    for turn in TURNS; do
        seen=$(newest || true)
        while [ "$(newest || true)" = "$seen" ]; do command sleep 0.02; done
    done
}
"""
_PRINTS = re.compile(r"# prints: (.*)$", re.MULTILINE)


def blocks(path: Path, kind: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return [found["code"] for found in _BLOCK.finditer(path.read_text()) if found["kind"] == kind]


def promised_output(code: str) -> list[str]:
    """What the comments `# prints: ...` say."""
    return _PRINTS.findall(code)


def sleeping_until_checkpoints(job: str, turns: int = 2) -> str:
    """Has `sleep` of a shell wait until so many more checkpoints are complete: machines may be slow."""
    counted = " ".join(map(str, range(turns)))
    return _SLEEP.replace("NAME", job).replace("TURNS", counted)


def environment() -> dict[str, str]:
    """Variables under which `python` is this one, with the code of this folder."""
    folder = os.path.dirname(sys.executable)
    code = os.pathsep.join([str(ROOT), str(ROOT / "connectors")])
    path = os.pathsep.join([folder, os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": code}


def run_python(code: str, folder: Path) -> list[str]:
    """Run a program in a folder; the lines it printed. Raises AssertionError if it fails."""
    script = folder / "snippets.py"
    script.write_text(code)
    ran = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()
