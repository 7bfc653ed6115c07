"""The pages of the documentation: snippets run, links lead somewhere, generated parts are current."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from docs.blocks import with_blocks
from minirt.settings import load_settings
from tests.docs.blocks import ROOT, blocks, environment, promised_output, run_python

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
GENERATORS = sorted((ROOT / "docs").glob("make_*.py"))


@pytest.mark.processes
@pytest.mark.parametrize("name", ["operators", "running", "writing-a-mode"])
def test_snippets_print_what_they_say(name, tmp_path):
    program = "\n".join(blocks(ROOT / "docs" / f"{name}.md", "python"))
    assert run_python(program, tmp_path) == promised_output(program)


@pytest.mark.processes
def test_the_commands_of_running_jobs_work_one_after_another(tmp_path):
    [program] = [code for code in blocks(ROOT / "docs/running.md", "python") if '"job.py"' in code]
    commands = "\n".join(blocks(ROOT / "docs/running.md", "bash"))
    run_python(f"from pathlib import Path\nfolder = Path()\n{program}", tmp_path)
    ran = subprocess.run(
        ["bash", "-ec", commands], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert (ran.stdout + ran.stderr).count("job 'sums' finished") == 4
    assert "goes on from there at another parallelism" in ran.stdout
    assert (tmp_path / "savepoints/monday").is_dir()
    assert f"savepoint: {tmp_path / 'savepoints/tuesday'}" in ran.stdout


def test_the_settings_file_of_running_jobs_is_read(tmp_path):
    [content] = blocks(ROOT / "docs/running.md", "toml")
    (tmp_path / "minirt.toml").write_text(content)
    settings = load_settings(tmp_path / "minirt.toml", environ={})
    assert settings.checkpointing is not None
    assert settings.checkpointing.mode.timeout == "2s"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, heading = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), target
        if heading:
            assert heading in _headings(other.read_text()), target


@pytest.mark.parametrize("script", GENERATORS, ids=lambda script: script.stem)
def test_generated_parts_are_current(script):
    checked = subprocess.run(
        [sys.executable, script, "--check"], env=environment(), capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_a_block_that_is_not_current_is_replaced():
    text = "a\n<!-- generated: x -->\n\nold\n\n<!-- end -->\nb"
    assert with_blocks(text, {"x": "new"}) == text.replace("old", "new")
    with pytest.raises(KeyError, match="no block 'y'"):
        with_blocks(text, {"y": "new"})


WORDS = (
    "aligned barrier batch chain channel checkpoint commit coordinator credit frame generation handle "
    "inline keyed link manifest operator orphan partitioning protocol restore side slice snapshot "
    "split subtask template timer token watermark worker"
)


@pytest.mark.parametrize("word", WORDS.split())
def test_the_glossary_knows_the_words_of_the_code(word):
    """Those that docstrings of modules use; a word that none uses any more leaves the list."""
    docstrings = [
        (ast.get_docstring(ast.parse(path.read_text())) or "").lower()
        for path in (ROOT / "minirt").rglob("*.py")
    ]
    used = re.compile(rf"\b{word}s?\b")
    assert any(used.search(text) for text in docstrings)
    terms = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert any(used.search(term.lower()) for term in terms)


def _headings(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
