"""The site: what it is made from is complete, and what it would load from elsewhere is found."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, SimpleNamespace

import pytest

import minirt
from minirt.api.trying import Trying
from tests.docs.asked import ASKED
from tests.docs.blocks import ROOT
from tests.ui.browser import running_browser

pytest.importorskip("mkdocs", reason="needs what builds the site: pip install -e '.[site]'")

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

from docs import site_hooks


def test_the_reference_of_the_api_has_every_public_name_once():
    named = [name for names in site_hooks.API.values() for name in names.split()]
    assert sorted(named) == sorted(set(minirt.__all__) - {"__version__"})


SUBCLASSED_OR_HANDED_OVER = ("Jobs and streams", "Functions and state")


@pytest.mark.parametrize(
    "name", [name for page in SUBCLASSED_OR_HANDED_OVER for name in site_hooks.API[page].split()]
)
def test_the_reference_has_every_method_that_jobs_call_or_define(name):
    """The tool leaves out what has no docstring, and what is inherited unless it is asked for it."""
    documented = {getattr(minirt, public) for public in minirt.__all__} | {Trying}
    shown = set()
    for base in getattr(minirt, name).__mro__:
        if not base.__module__.startswith("minirt."):
            continue
        methods = {
            member: value
            for member, value in vars(base).items()
            if not member.startswith("_") and isinstance(value, FunctionType | property)
        }
        assert {member for member, value in methods.items() if not value.__doc__} == set()
        if base in documented:
            shown |= {*methods, *site_hooks.INHERITED.get(base.__name__, [])}
        assert methods.keys() <= shown


def test_labels_that_say_how_a_name_is_made_are_left_out():
    label = '<small class="doc doc-label doc-label-{0}"><code>{0}</code></small>'
    html = (
        "<h3>x" + "".join(map(label.format, ("property", "cached", "instance-attribute"))) + "</h3>"
    )
    left = "<h3>x" + label.format("property") + "</h3>"
    for path, shown in (("api/errors.md", left), ("windows.md", html)):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=path))
        assert site_hooks.on_page_content(html, page, None, None) == shown


def test_the_navigation_has_every_page_once_by_its_title():
    _, *sections = site_hooks.navigation(ROOT / "docs")
    entries = [entry for section in sections for pages in section.values() for entry in pages]
    paths = [path for entry in entries for path in entry.values()]
    written = [path for path in paths if not path.startswith(("api/", "architecture/"))]
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert sorted(written) == sorted(pages)
    assert {"Tutorial": "tutorial.md"} in entries


def test_each_decision_of_the_architecture_is_a_page_and_links_lead_to_it():
    text = (ROOT / "docs/architecture.md").read_text()
    titles = [title for title, _, _ in site_hooks.decisions(text)]
    assert titles[0] == "A protocol that decides and does not act"
    assert {"State", "Commits", "Limits"} <= {*titles}
    assert "The rooms" not in titles
    docs = ROOT / "docs"
    state = "architecture/state.md"
    for link, path, led in (
        ("](architecture.md#kernels)", "scale.md", "records-batches-and-frames.md#kernels)"),
        ("](#state)", "architecture.md", f"]({state}#state)"),
        ("](#state)", state, "](#state)"),
        ("](#the-rooms)", state, "](../architecture.md#the-rooms)"),
        ("](storage.md)", state, "](../storage.md)"),
        ("](#state)", "scale.md", "](#state)"),
        ("](https://example.org/a#b)", state, "](https://example.org/a#b)"),
    ):
        assert site_hooks._linked(f"[x{link}", path, docs).endswith(led), link


def test_the_search_prefers_pages_that_say_what_to_do():
    docs = ROOT / "docs"
    paths = (
        "questions.md",
        "testing-a-job.md",
        "windows.md",
        "architecture/state.md",
        "changes.md",
    )
    boosts = [site_hooks.boost(path, docs) for path in paths]
    assert boosts == sorted(set(boosts), reverse=True)
    assert boosts[2] == site_hooks.boost("README.md", docs) == 1


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


_ASKED = """
async words => {
  const code = "onmessage = event => postMessage(event.data)"
  const worker = new Worker(URL.createObjectURL(new Blob([code])))
  const answers = []
  for (const message of words)
    answers.push(await new Promise(done => {
      worker.onmessage = event => done(event.data)
      worker.postMessage(message)
    }))
  return answers
}
"""


def test_words_that_every_question_has_are_not_searched_for():
    script = (ROOT / "docs/site_search.js").read_text()
    query = 2
    with running_browser() as browser:
        page = browser.page()
        page.goto("about:blank")
        page.add_script_tag(content=script)
        asked = ("How do I test a job", "what is it", "+kafka +exactly once")
        messages = [{"type": query, "data": words} for words in asked]
        heard = page.evaluate(_ASKED, [*messages, {"type": 0, "data": "is not a query"}])
    assert [message["data"] for message in heard] == [
        "test job",
        "what is it",
        "+kafka +exactly once",
        "is not a query",
    ]


@pytest.mark.parametrize("asked", ASKED)
def test_the_page_that_answers_a_question_has_its_words(asked):
    """So the search can find it; test_search.py, which builds the site, says whether it comes first."""
    script = (ROOT / "docs/site_search.js").read_text()
    left_out = {*" ".join(re.findall(r'"([a-z ]+)"', script)).split()}
    page = (ROOT / "docs" / ASKED[asked].replace(".html", ".md")).read_text().lower()
    words = [word for word in asked.lower().split() if word not in left_out]
    assert words
    for word in words:
        assert re.search(rf"\b{word}", page), word


def test_the_search_of_the_theme_asks_as_the_script_expects():
    """Another version of the theme may call its messages otherwise; then the script would do nothing."""
    theme = Path(str(find_spec("material").submodule_search_locations[0]))
    [bundle] = (theme / "templates/assets/javascripts").glob("bundle.*.min.js")
    assert re.search(r"\.next\(\{type:2,data:\w\}\)", bundle.read_text())
