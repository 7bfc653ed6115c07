"""The page on looking into checkpoints: its programs and its commands, in the order in which they stand."""

from __future__ import annotations

import pytest

from tests.docs.blocks import ROOT, blocks, promised_output, run_python
from tests.docs.shell import run_commands

PAGE = ROOT / "docs" / "inspecting.md"


@pytest.mark.processes
def test_programs_and_commands_do_what_the_page_says(tmp_path):
    first, second = blocks(PAGE, "python")
    [commands] = blocks(PAGE, "bash")
    run_python(first, tmp_path)
    ran = run_commands(commands, tmp_path, options="-ec")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert "wrote 10 rows to sums.parquet" in ran.stdout
    assert "deleted checkpoint" in ran.stdout
    # The program as a reader has it: both blocks, one behind the other.
    (tmp_path / "again").mkdir()
    program = f"{first}\n{second}"
    assert run_python(program, tmp_path / "again") == promised_output(program)
