"""The page in a real browser: no complaint in its console, played by keys alone, and all has its room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from minirt.pictures.page import page
from minirt.pictures.timeline import timeline
from minirt.protocol.trace import CheckpointTrace
from tests.pictures.hand_made import aligned, unaligned, wide
from tests.ui.browser import SIZES, TEXTS, Browser, picture, running_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


def visit(browser: Browser, folder: Path, traces: Sequence[CheckpointTrace], size: str) -> Any:
    file = folder / "page.html"
    file.write_text(page([timeline(one) for one in traces]))
    browser.complaints.clear()
    opened = browser.page(size)
    opened.goto(file.as_uri())
    return opened


def shown(opened: Any, what: str) -> int:
    return int(
        opened.evaluate(
            "what => [...document.querySelectorAll(what)].filter(e => e.style.display !== 'none').length",
            what,
        )
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_page_is_played_by_keys_without_a_complaint(
    browser: Browser, tmp_path: Path, size: str
) -> None:
    opened = visit(browser, tmp_path, [aligned(), unaligned()], size)
    assert shown(opened, ".dots circle") == 0
    picture(opened, f"picture-4-subtasks-{size}")
    assert opened.evaluate(TEXTS) == []
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.id") == "play"
    opened.keyboard.press("Tab")
    opened.keyboard.press("Home")
    for _ in range(3):
        opened.keyboard.press("PageUp")
    assert shown(opened, ".dots circle") > 0
    assert " of 56.0 s" in opened.locator("#time").get_attribute("aria-valuetext")
    before = float(opened.locator("#time").input_value())
    opened.keyboard.press("Shift+Tab")
    opened.keyboard.press("Enter")
    assert opened.locator("#play").inner_text() == "Pause"
    opened.wait_for_function(
        "before => +document.getElementById('time').value > before", arg=before
    )
    opened.keyboard.press("Enter")
    assert opened.locator("#play").inner_text() == "Play"
    assert opened.evaluate(TEXTS) == []
    opened.context.close()
    assert browser.complaints == []


@pytest.mark.parametrize("size", SIZES)
def test_two_hundred_subtasks_can_be_unfolded(browser: Browser, tmp_path: Path, size: str) -> None:
    opened = visit(browser, tmp_path, [wide(100)], size)
    folded = shown(opened, ".lane")
    assert folded < 12
    picture(opened, f"picture-200-subtasks-{size}")
    assert opened.evaluate(TEXTS) == []
    opened.locator(".group[role=button]").first.focus()
    opened.keyboard.press("Enter")
    assert shown(opened, ".lane") > 100
    picture(opened, f"picture-200-subtasks-{size}-unfolded")
    assert opened.evaluate(TEXTS) == []
    opened.context.close()
    assert browser.complaints == []
