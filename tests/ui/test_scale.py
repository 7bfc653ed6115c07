"""The page of large jobs, and of one that fails again and again: nothing overlaps, and it stays small."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import minirt as rt

pytest.importorskip("uvicorn", reason="the extra ui is not installed")

import uvicorn

from minirt.runtime.program.job import Job
from minirt.ui.guard import Access
from minirt.ui.reading import Plain, Reading
from minirt.ui.server import listen, make_app
from minirt.ui.watch import Watch
from tests.runtime.processes import wait_until
from tests.ui import samples
from tests.ui.browser import CONTRAST, OVERLAPS, SIZES, TEXTS, Browser, picture, running_browser
from tests.ui.conftest import Serve

pytestmark = pytest.mark.processes

ELEMENTS_MAX = 4000
"""Of a page, whatever the job: a browser lays them out in some tens of milliseconds."""


class Large:
    """A job of so many subtasks, one of which has most of the records, with a long history."""

    def __init__(self, subtasks: int, checkpoints: int) -> None:
        self.subtasks = subtasks
        slow = [
            samples.subtask(
                index,
                busy=0.99 if index == 7 else 0.3 + index % 5 / 10,
                waits=0.01,
                records=5000 if index == 7 else 100,
                lag_s=1.5 + index % 11,
                stored_s=2.0 if index == 7 else 0.1,
            )
            for index in range(subtasks)
        ]
        read = [samples.subtask(i, busy=0.1, waits=0.7 + i % 3 / 10) for i in range(subtasks)]
        name = "enrich_orders_with_customers_and_prices_of_the_day"
        operators = [
            samples.operator("orders", read),
            samples.operator(name, slow),
            samples.operator("out", [samples.subtask(0, busy=0.05)]),
        ]
        parts = [
            {**part, "name": f"{name} chain ({place + 1}/{subtasks})"}
            for place, part in enumerate(samples.parts(subtasks, slow=7))
        ]
        self._one = {**samples.checkpoint(checkpoints, 2.0), "subtasks": parts, "missing": []}
        history = [samples.checkpoint(id, 0.1 + id % 7 / 10) for id in range(1, checkpoints + 1)]
        for place in range(0, checkpoints, 9):
            reason = f"expired after 2 s; {subtasks - 1} subtasks are missing: " + name * 5
            history[place] |= {"status": "failed", "reason": reason, "bytes": None}
        self._reading = samples.reading(
            *operators,
            checkpoints=history,
            newest=self._one,
            figures=samples.figures(
                *operators,
                checkpoints={
                    "completed": checkpoints,
                    "failed": checkpoints // 9,
                    "newest": samples.checkpoint(checkpoints, 2.0),
                    "last_failure": history[0]["reason"],
                },
            ),
        )

    def read(self) -> Reading:
        return self._reading

    def checkpoint(self, checkpoint_id: int, generation: int) -> Plain:
        return {**self._one, "checkpoint_id": checkpoint_id}

    def act(self, action: str, arguments: Plain) -> Plain:
        return {}


@contextmanager
def served(subject: Any) -> Iterator[str]:
    """The URL of a page of it, as `minirt ui` serves it."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(16)
    app = make_app(Watch(subject), Access("127.0.0.1", port, token))
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/?token={token}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found
        assert found.complaints == []


@pytest.mark.parametrize(
    ("subtasks", "checkpoints"),
    [pytest.param(200, 130, marks=pytest.mark.soak), (1000, 10_000)],
)
def test_many_subtasks_and_a_long_history_have_room(
    browser: Browser, subtasks: int, checkpoints: int
) -> None:
    with served(Large(subtasks, checkpoints)) as url:
        for size in SIZES:
            page = browser.page(size)
            page.goto(url)
            page.wait_for_selector(".gantt tr")
            began = time.monotonic()
            assert page.locator("*").count() < ELEMENTS_MAX
            assert page.locator(".node rect.cell, .node rect.cell-blocked").count() <= 2 * 48 + 1
            assert page.locator(".gantt tr").first.inner_text().strip()
            assert f"{subtasks - 24} more subtasks" in page.locator(".timeline").inner_text()
            picture(page, f"{subtasks}-subtasks-{size}")
            assert page.evaluate(OVERLAPS) == []
            assert page.evaluate(TEXTS) == []
            assert page.evaluate(CONTRAST) == []
            page.click(".checkpoints button:text('Older')")
            page.wait_for_selector("button:not([disabled]) >> text=Newer")
            page.locator(".strip .bar").first.click()
            page.wait_for_selector(".timeline h3")
            page.click(".node >> nth=1")
            page.wait_for_selector("h2 >> text=Busiest subtasks of")
            assert page.evaluate(OVERLAPS) == []
            assert time.monotonic() - began < 60
            page.context.close()


def failing(number: int) -> int:
    if number == 400:
        raise ValueError("the price of order 400 is negative: " + "a long explanation, " * 20)
    return number


@pytest.fixture
def failing_job(registry: Path, tmp_path: Path) -> Iterator[Job]:
    """One that fails about every second, as each start comes to the same record."""
    env = rt.Environment("orders", parallelism=2)
    paced = rt.Watermarks.monotonous(timestamp=lambda number: number)
    numbers = env.source(
        rt.SequenceSource.endless(splits=1),
        uid="numbers",
        parallelism=1,
        watermarks=paced,
        speed=0.4,
    )
    numbers.rebalance().map(failing, uid="prices", name="prices").sink(rt.DiscardSink(), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "stored", interval="300ms"),
        restart=rt.Restart.fixed_delay(None, "100ms"),
    )
    yield job
    job.cancel()
    job.wait(60)


def test_a_job_that_fails_again_and_again(browser: Browser, failing_job: Job, serve: Serve) -> None:
    url = serve()
    wait_until(lambda: failing_job.figures.restarts >= 3, "three failures")
    for size in SIZES:
        page = browser.page(size)
        page.goto(url)
        page.wait_for_selector(".node")
        page.wait_for_selector("details summary >> nth=2")
        assert "prices failed on record 400" in page.locator(".verdict").inner_text()
        assert "is negative" in page.locator("details pre").first.text_content()
        for _ in range(8):  # It changes meanwhile: running, restarting, with rates and without.
            assert page.evaluate(OVERLAPS) == []
            assert page.evaluate(TEXTS) == []
            page.wait_for_timeout(250)
        picture(page, f"failing-{size}")
        assert page.evaluate(CONTRAST) == []
        page.context.close()
