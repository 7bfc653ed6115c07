"""The search of the built site: what people ask first leads to the page that answers it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.asked import ASKED
from tests.docs.blocks import ROOT
from tests.ui.browser import running_browser

pytest.importorskip("mkdocs", reason="needs what builds the site: pip install -e '.[site]'")

FIRST = """
async words => {
  const input = document.querySelector(".md-search__input")
  const list = document.querySelector(".md-search-result__list")
  const next = new Promise(done => new MutationObserver((_, seen) => {
    if (list.firstChild) { seen.disconnect(); done() }
  }).observe(list, { childList: true }))
  input.value = words
  input.dispatchEvent(new KeyboardEvent("keyup"))
  await next
  return list.querySelector("a").href
}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        with running_browser() as browser:
            page = browser.page()
            page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
            page.focus(".md-search__input")
            yield page
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *said: Any) -> None:
        """Nothing: what is served is of no interest."""


@pytest.mark.soak
def test_what_people_ask_first_is_answered_by_the_page_that_comes_first(page: Any) -> None:
    found = {words: page.evaluate(FIRST, words) for words in ASKED}
    assert {words: link.split("/")[3].split("?")[0] for words, link in found.items()} == ASKED
