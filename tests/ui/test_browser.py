"""The page in a real Chromium: a running job, a kill while watching, one that is over, keys, sizes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minirt.runtime.program.job import Job
from tests.runtime.processes import wait_until
from tests.ui.browser import CONTRAST, OVERLAPS, Browser, picture, running_browser
from tests.ui.conftest import Serve, done_job

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, serve: Serve) -> Iterator[Browser]:
    """The same one for all tests, each with pages of its own, closed before their server ends."""
    chromium.asked.clear()
    yield chromium
    for context in chromium.chromium.contexts:
        context.close()
    complaints, chromium.complaints[:] = [*chromium.complaints], []
    assert complaints == []


def opened(browser: Browser, url: str, size: str = "wide", scheme: str = "light") -> Any:
    page = browser.page(size, scheme)
    page.goto(url)
    page.wait_for_selector(".node")
    page.wait_for_selector(".gantt tr")
    return page


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("wide", "light"),
        ("phone", "dark"),
        pytest.param("wide", "dark", marks=pytest.mark.soak),
        pytest.param("phone", "light", marks=pytest.mark.soak),
    ],
)
def test_a_running_job_at_every_size_and_in_both_schemes(
    browser: Browser, lasting_job: Job, serve: Serve, size: str, scheme: str
) -> None:
    url = serve()
    page = opened(browser, url, size, scheme)
    page.wait_for_selector("figure path.line >> nth=0", state="attached")
    assert page.url == url.partition("?")[0]  # The token is out of sight.
    assert page.locator("h1").inner_text() == "orders <b>&"
    assert "<script>alert(1)</script>" in " ".join(page.locator(".node title").all_text_contents())
    assert page.locator(".verdict p").count() >= 2
    assert "no price <b> for item 3" in page.locator(".log").inner_text()
    page.wait_for_selector(".node text.small >> text=/latency \\d+ ms . \\d+ ms/")
    page.wait_for_selector(".course figcaption >> text=/latency.*99 % within \\d+/")
    picture(page, f"running-{size}-{scheme}")
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(CONTRAST) == []
    assert browser.asked == {url.partition("/?")[0]}


def test_a_kill_while_watching(browser: Browser, job: Job, serve: Serve) -> None:
    page = opened(browser, serve("orders <b>&"))
    page.wait_for_selector(".course >> text=--set options.latency_interval=1s")
    pids = {one.pid for one in job.figures.subtasks}
    pid = next(pid for pid in pids if pid is not None)
    os.kill(pid, signal.SIGKILL)
    page.wait_for_selector(".facts >> text=/[1-9]\\d* restart/")
    restarted = page.locator("details", has_text="restarting").first
    restarted.locator("summary").click()
    assert restarted.locator("pre").inner_text().strip()
    page.wait_for_selector(".status.running")
    page.wait_for_selector(".node text.small >> text=busy >> nth=0")
    assert page.evaluate(OVERLAPS) == []
    picture(page, "killed")


def test_everything_can_be_reached_and_done_with_keys_alone(
    browser: Browser, job: Job, serve: Serve, tmp_path: Path
) -> None:
    page = opened(browser, serve())
    reached: list[str] = []

    def tab_to(words: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            found = page.evaluate(
                "(document.activeElement.getAttribute('aria-label') ?? '') + ' | '"
                " + document.activeElement.textContent.slice(0, 200)"
            )
            reached.append(found)
            if words in found:
                return
        raise AssertionError(f"no {words!r} among {reached}")

    tab_to("Savepoint")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] input:focus")
    page.keyboard.type(str(tmp_path / "saved"))
    page.keyboard.press("Enter")
    page.wait_for_selector(".said >> text=Savepoint: done")
    assert (tmp_path / "saved").is_dir()
    tab_to("2 subtasks")
    page.keyboard.press("Enter")
    page.wait_for_selector("h2 >> text=Busiest subtasks of")
    tab_to("checkpoint ")
    page.keyboard.press("Home")
    page.wait_for_selector(".timeline h3 >> text=/checkpoint 1 /")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".timeline h3 >> text=/checkpoint 2 /")
    tab_to("Follow the newest")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline h3 >> text=/checkpoint ([3-9]|\\d\\d+) /")
    tab_to("options")
    page.keyboard.press("Enter")
    page.wait_for_selector("dt >> text=checkpointing.mode")


def test_cancel_ends_the_job_and_the_page_says_so(browser: Browser, job: Job, serve: Serve) -> None:
    page = opened(browser, serve())
    page.click("text=Cancel")
    page.click("dialog[open] >> text=Do nothing")
    assert job.status.value == "running"
    page.click(".actions > button >> text=Cancel")
    page.click("dialog[open] button.danger")
    page.wait_for_selector(".remark >> text=The job has ended")
    wait_until(lambda: job.status.value == "cancelled", "the end")
    assert page.locator(".actions button").count() == 0


def test_a_job_that_is_over_is_shown_from_its_storage(
    browser: Browser, serve: Serve, tmp_path: Path, registry: Path
) -> None:
    with done_job(tmp_path) as storage:
        page = opened(browser, serve(str(storage)))
    assert page.locator(".status").inner_text().lower() == "finished"
    assert page.locator(".node").count() == 2
    assert page.locator(".edge").count() == 1
    assert page.locator(".actions button").count() == 0
    assert page.evaluate(OVERLAPS) == []
    picture(page, "over")


def test_what_lies_on_something_else_and_pale_text_would_be_found(
    browser: Browser, lasting_job: Job, serve: Serve
) -> None:
    page = opened(browser, serve())
    page.evaluate("document.querySelector('.panel h2').style.color = '#aaa'")
    page.evaluate("document.querySelector('.head').style.marginBottom = '-60px'")
    assert page.evaluate(CONTRAST) != []
    page.evaluate("document.querySelector('.verdict').style.marginBottom = '-80px'")
    assert page.evaluate(OVERLAPS) != []
