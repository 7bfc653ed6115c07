"""The site: what it is made from is complete, and what it would load from elsewhere is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import minirt
from tests.docs.blocks import ROOT

pytest.importorskip("mkdocs", reason="needs what builds the site: pip install -e '.[site]'")

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

from docs import site_hooks


def test_the_reference_of_the_api_has_every_public_name_once():
    named = [name for names in site_hooks.API.values() for name in names.split()]
    assert sorted(named) == sorted(set(minirt.__all__) - {"__version__"})


def test_the_navigation_has_every_page_once_by_its_title():
    _, *sections = site_hooks.navigation(ROOT / "docs")
    entries = [entry for section in sections for pages in section.values() for entry in pages]
    paths = [path for entry in entries for path in entry.values()]
    written = [path for path in paths if not path.startswith("api/")]
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert sorted(written) == sorted(pages)
    assert {"Tutorial": "tutorial.md"} in entries


def test_the_page_of_commands_names_every_command_and_no_python():
    page = site_hooks.commands_page()
    for name in ("run", "new", "checkpoints show", "savepoint"):
        assert f"## minirt {name}\n" in page
    assert "Typer" not in page


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ('<script src="https://unpkg.com/x">', True),
        ("<link href='//fonts.example/x' rel='stylesheet'>", True),
        ('<a href="https://semver.org">', False),
        ('<script src="assets/x.js">', False),
    ],
)
def test_what_a_page_would_load_from_elsewhere_is_found(tmp_path: Path, tag, found):
    (tmp_path / "page.html").write_text(f"<html>{tag}</html>")
    config = MkDocsConfig()
    config.site_dir = str(tmp_path)
    if not found:
        site_hooks.on_post_build(config)
        return
    with pytest.raises(PluginError, match=r"page\.html would load"):
        site_hooks.on_post_build(config)
