"""The pages of the documentation: snippets run, links lead somewhere, generated parts are current."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from docs.blocks import with_blocks
from minirt.settings import load_settings
from tests.docs.blocks import ROOT, blocks, environment, promised_output, run_python
from tests.docs.shell import run_commands
from tests.naming import files_that, trees

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
GENERATORS = sorted((ROOT / "docs").glob("make_*.py"))
NO_PROGRAMS = {
    "command-line",
    "storage",
    "metrics",
    "inspecting",
    "testing",
    "performance",
    "changes",
    "tutorial",
}
"""Pages whose Python blocks other tests run, or that show parts of a program."""
PROGRAMS = [
    page.stem
    for page in PAGES
    if page.stem not in {"README", *NO_PROGRAMS} and blocks(page, "python")
]


@pytest.mark.processes
@pytest.mark.parametrize("name", PROGRAMS)
def test_snippets_print_what_they_say(name, tmp_path):
    program = "\n".join(blocks(ROOT / "docs" / f"{name}.md", "python"))
    assert run_python(program, tmp_path) == promised_output(program)


@pytest.mark.processes
def test_the_commands_of_the_command_line_work_one_after_another(tmp_path):
    [program] = blocks(ROOT / "docs/command-line.md", "python")
    commands = "\n".join(blocks(ROOT / "docs/command-line.md", "bash"))
    run_python(program, tmp_path)
    ran = run_commands(commands, tmp_path, options="-ec")
    assert ran.returncode == 0, ran.stderr
    assert (ran.stdout + ran.stderr).count("job 'sums' finished") == 5
    assert "goes on from there at another parallelism" in ran.stderr
    assert (tmp_path / "savepoints/monday").is_dir()
    assert f"savepoint: {tmp_path / 'savepoints/tuesday'}" in ran.stdout


def test_the_settings_file_of_the_configuration_is_read(tmp_path):
    [content] = blocks(ROOT / "docs/configuration.md", "toml")
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_rows_of_tables_have_as_many_cells_as_their_heads(page):
    for table in re.findall(r"(?:^\|.*\n)+", _outside_blocks(page), re.MULTILINE):
        head, rule, *rows = table.splitlines()
        assert re.fullmatch(r"\|(?:-+\|)+", rule), rule
        for row in rows:
            assert row.endswith("|"), row
            assert _cells(row) == _cells(head), row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_line_of_a_table_stands_apart(page):
    """A cell with a line break would end its table, and show the rest of the row as text."""
    lines = _outside_blocks(page).splitlines()
    for above, line in pairwise(lines):
        if above.startswith("|"):
            assert line.startswith("|") or not line, line


def test_the_index_names_every_page_once():
    index = (ROOT / "docs/README.md").read_text()
    named = re.findall(r"^\* \[(\S+\.md)\]\(\1\)", index, re.MULTILINE)
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert sorted(named) == sorted(pages)


STEP = re.compile(r"^\|[^|]*\| `([\w/]+\.py)` \| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)


def test_the_walks_name_functions_that_are_where_they_say():
    steps = STEP.findall((ROOT / "docs/architecture.md").read_text())
    assert len(steps) > 50
    for file, names in steps:
        tree = trees()[file]
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert set(re.findall(r"\w+", names)) <= defined, file


def test_paths_in_the_architecture_exist():
    """Short forms such as `data/layout.py` are below `minirt/`, or below `minirt/runtime/`."""
    text = (ROOT / "docs/architecture.md").read_text()
    for path in set(re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", text)):
        folders = (ROOT, ROOT / "minirt", ROOT / "minirt/runtime")
        assert any((folder / path).exists() for folder in folders), path


LISTING = ("", "laboratory", "monitoring", "operations", "protocol", "runtime", "settings", "ui")
"""Packages whose docstring says what each of their modules is for."""


@pytest.mark.parametrize("package", LISTING)
def test_a_package_lists_each_of_its_modules_once(package):
    folder = ROOT / "minirt" / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    rows = re.findall(r"^ *(\w+(?:, \w+)*)/?  +\S", text, re.MULTILINE)
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()]
    modules = {path.stem for path in paths} - {"__init__", "__main__", "__pycache__"}
    assert sorted(re.findall(r"\w+", " ".join(rows))) == sorted(modules)


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
    used = re.compile(rf"\b{word}s?\b")
    assert files_that(lambda tree: bool(used.search((ast.get_docstring(tree) or "").lower())))
    terms = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert any(used.search(term.lower()) for term in terms)


def _outside_blocks(page: Path) -> str:
    """The text of a page without its code and its pictures."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _cells(row: str) -> int:
    """How many cells a row has; bars in code do not part them."""
    return re.sub(r"`[^`]*`", "", row).count("|")


def _headings(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
