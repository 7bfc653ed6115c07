"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.needs import lacks, program

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WAIT_MS = 60_000
SIZES = {"wide": (1440, 900), "phone": (390, 844)}


@dataclass
class Browser:
    """One process of Chromium. Every complaint of a page's console is in `complaints`."""

    chromium: Any
    complaints: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    """The origins of all requests that pages sent."""

    def page(self, size: str = "wide", scheme: str = "light") -> Any:
        width, height = SIZES[size]
        viewport = {"width": width, "height": height}
        page = self.chromium.new_context(viewport=viewport, color_scheme=scheme).new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.add("/".join(request.url.split("/")[:3])))
        return page

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@contextmanager
def running_browser() -> Iterator[Browser]:
    path = program("chromium", "chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        lacks("chromium", f"playwright is missing: {error}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield Browser(chromium)
        finally:
            chromium.close()


OVERLAPS = (Path(__file__).parent / "overlaps.js").read_text()
"""What lies on what, in a page; empty if nothing does."""

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
"""Texts whose contrast with what is behind them is below 4.5 to 1 (WCAG 2, AA)."""

TEXTS = (Path(__file__).parent / "texts.js").read_text()
"""Texts of drawings that lie on each other or are cut off, and a page that is wider than its window."""


PICTURES = os.environ.get("PAGE_PICTURES")
"""A folder for screenshots, to be looked at."""


def picture(page: Any, name: str) -> None:
    if PICTURES is not None:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)
