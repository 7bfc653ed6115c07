"""The tutorial, word by word: its pieces print what it says, and its job survives what it does to it."""

from __future__ import annotations

import re
from codeop import compile_command

import pytest

from tests.docs.blocks import (
    ROOT,
    blocks,
    promised_output,
    run_python,
    sleeping_until_checkpoints,
)
from tests.docs.shell import run_commands

PAGE = ROOT / "docs/tutorial.md"
SAID = r"WARNING minirt.job: job 'shop' restarts in 0.05 s: worker \d \(process \d+: "


@pytest.mark.processes
def test_the_pieces_print_what_the_page_says(tmp_path):
    program = "\n".join(blocks(PAGE, "python")[:-1])
    assert run_python(program, tmp_path) == promised_output(program)


def test_the_pieces_can_be_typed_at_the_prompt_one_after_another():
    """A block that ends with a loop would wait for an empty line, and take the next piece for its rest."""
    for piece in blocks(PAGE, "python")[:-1]:
        waiting: list[str] = []
        for line in piece.splitlines():
            waiting.append(line)
            if compile_command("\n".join(waiting)) is not None:
                waiting.clear()
        assert waiting == []


@pytest.mark.processes
def test_the_job_survives_and_the_commands_show_what_the_page_says(tmp_path):
    (tmp_path / "shop.py").write_text(blocks(PAGE, "python")[-1])
    typed = "\n".join(blocks(PAGE, "bash"))
    assert typed.count("stormy 30") == 2
    # A slow machine has to be killed twice before the job is over, which then may hurry.
    typed = typed.replace("stormy 30", "stormy 15", 1).replace("stormy 30", "stormy 300")
    ran = run_commands(sleeping_until_checkpoints("stormy", 1) + typed, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = ran.stdout.splitlines()
    assert (
        len([line for line in said if re.fullmatch(r"finished after \d+ checkpoints", line)]) == 2
    )
    assert "30" in [line.strip() for line in said]
    assert "every result is there, exactly once" in said
    assert re.search(SAID, ran.stderr), ran.stderr
    assert re.search(SAID, PAGE.read_text())
    shown = [line for line in blocks(PAGE, "text") if line.startswith("{")]
    rows = [
        line
        for path in (tmp_path / "out/calm").glob("*.jsonl")
        for line in path.read_text().splitlines(True)
    ]
    assert set(shown) <= set(rows)
