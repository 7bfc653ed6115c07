"""The report in a real Chromium: whatever the size and the number of subtasks, all has its room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra lab is not installed")
pytest.importorskip("jinja2", reason="the extra lab is not installed")

from minirt.laboratory.measured import Comparison
from minirt.laboratory.report import write_html
from tests.campaigns import soaked
from tests.laboratory.example import comparison, page_of_many_settings
from tests.ui.browser import CONTRAST, SIZES, TEXTS, Browser, picture, running_browser

REPORTS: dict[str, Callable[[], Comparison]] = {
    "2-subtasks": lambda: comparison(kills=2),
    "200-subtasks": lambda: comparison(subtasks=200),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.mark.parametrize("name", ["200-subtasks", *soaked("2-subtasks")])
def test_a_report_has_room_for_everything(name: str, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_html(REPORTS[name](), file)
    for size, scheme in zip(SIZES, ("light", "dark"), strict=True):
        page = browser.page(size, scheme)
        page.goto(file.as_uri())
        picture(page, f"report-{name}-{size}")
        assert page.evaluate(TEXTS) == []
        assert page.evaluate(CONTRAST) == []
        page.context.close()
    assert browser.complaints == []


def test_many_settings_have_room_and_tables_are_moved_by_keys(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(page_of_many_settings())
    page = browser.page("phone")
    page.goto(file.as_uri())
    picture(page, "report-10-settings-phone")
    assert page.evaluate(TEXTS) == []
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        if reached[-1] == "Figures of all settings":
            break
    assert reached[-1] == "Figures of all settings"
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    page.context.close()
