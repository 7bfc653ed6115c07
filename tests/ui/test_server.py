"""The routes: who may ask, what is refused, and that reading changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from minirt.ui.guard import Access
from minirt.ui.server import BODY_BYTES_MAX, make_app
from minirt.ui.watch import Watch
from tests.ui.samples import Known

HOST = "http://127.0.0.1:8421"
TOKEN = "right-token"


@pytest.fixture
def job() -> Known:
    return Known()


@pytest.fixture
def anyone(job: Known) -> Iterator[TestClient]:
    app = make_app(Watch(job), Access("127.0.0.1", 8421, TOKEN))
    with TestClient(app, base_url=HOST) as client:
        yield client


@pytest.fixture
def browser(anyone: TestClient) -> TestClient:
    """One that has opened the URL with the token."""
    assert anyone.get("/", params={"token": TOKEN}).status_code == 200
    return anyone


def post(client: TestClient, path: str, given: Any = None, **headers: str) -> Any:
    content = json.dumps({} if given is None else given)
    sent = {"origin": HOST, "content-type": "application/json", **headers}
    return client.post(path, content=content, headers=sent)


READS = (
    "/api/snapshot",
    "/api/events",
    "/api/checkpoint?id=7&generation=1",
    "/api/checkpoints?end=5",
)


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=", *READS])
def test_without_the_token_nothing_is_told(anyone: TestClient, path: str) -> None:
    answer = anyone.get(path)
    assert answer.status_code == 403
    assert "slow chain" not in answer.text
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(
    anyone: TestClient,
) -> None:
    cookie = anyone.get("/", params={"token": TOKEN}).headers["set-cookie"]
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert cookie.startswith("minirt_ui_8421=")
    assert anyone.get("/api/snapshot").json()["job"]["name"] == "sample"
    assert anyone.get("/").status_code == 200


@pytest.mark.parametrize("path", ["/?token=right-token", "/api/snapshot", "/page/app.js"])
def test_another_name_for_this_address_is_refused(browser: TestClient, path: str) -> None:
    for host in ("evil.example", "evil.example:8421", "127.0.0.1:80", "", "127.0.0.1:8421.evil"):
        assert browser.get(path, headers={"host": host}).status_code == 421, host


def test_requests_from_other_origins_are_refused(browser: TestClient, job: Known) -> None:
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:8422",
        "https://127.0.0.1:8421",
    ):
        assert browser.get("/api/snapshot", headers={"origin": origin}).status_code == 403
        assert post(browser, "/api/cancel", origin=origin).status_code == 403
    for site in ("cross-site", "same-site"):
        answer = browser.get("/api/snapshot", headers={"sec-fetch-site": site})
        assert answer.status_code == 403
        answer = browser.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"})
        assert answer.status_code == 200  # a link that leads here
    without = browser.post("/api/cancel", json={})
    assert without.status_code == 403
    assert job.done == []


@pytest.mark.parametrize("path", ["/", "/api/snapshot", "/page/app.js", "/nowhere", "/page/../x"])
def test_every_answer_forbids_what_is_not_from_here(browser: TestClient, path: str) -> None:
    headers = browser.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_nothing_changes_by_reading(browser: TestClient, job: Known) -> None:
    for action in ("savepoint", "stop", "cancel", "rescale"):
        assert browser.get(f"/api/{action}").status_code in (404, 405)
        assert browser.head(f"/api/{action}").status_code in (404, 405)
    assert job.done == []


def test_actions_reach_the_job_with_their_arguments(browser: TestClient, job: Known) -> None:
    assert post(browser, "/api/savepoint", {"path": "here"}).json() == {"path": "stored/7"}
    assert post(browser, "/api/stop", {"path": "", "drain": True}).status_code == 200
    assert post(browser, "/api/rescale", {"parallelism": 3}).status_code == 200
    assert post(browser, "/api/cancel").status_code == 200
    assert job.done == [
        ("savepoint", {"path": "here"}),
        ("stop", {"drain": True}),
        ("rescale", {"parallelism": 3}),
        ("cancel", {}),
    ]


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        ("/api/cancel", {"path": "x"}, "cancel takes no path"),
        ("/api/rescale", {"parallelism": "3"}, "parallelism is int, not '3'"),
        ("/api/rescale", {"parallelism": True}, "parallelism is int, not True"),
        ("/api/stop", {"drain": "yes"}, "drain is bool, not 'yes'"),
        ("/api/savepoint", ["x"], "the request is no object"),
        ("/api/savepoint", {"path": "x" * BODY_BYTES_MAX}, "at most 16384 bytes"),
        ("/api/savepoint", {"request": "cancel"}, "savepoint takes no request"),
    ],
)
def test_wrong_arguments_are_refused(
    browser: TestClient, job: Known, path: str, given: Any, message: str
) -> None:
    answer = post(browser, path, given)
    assert (answer.status_code, job.done) == (400, [])
    assert message in answer.json()["error"]


def test_what_the_job_refuses_is_told(browser: TestClient) -> None:
    answer = post(browser, "/api/savepoint", {"path": "full"})
    assert answer.status_code == 502
    assert answer.json() == {"error": "no savepoint: the disk is full"}


def test_only_known_actions_and_json_are_taken(browser: TestClient, job: Known) -> None:
    assert post(browser, "/api/figures").status_code == 404
    plain = {"content-type": "text/plain"}
    assert post(browser, "/api/cancel", **plain).status_code == 415
    sent = {"origin": HOST, "content-type": "application/json"}
    answer = browser.post("/api/cancel", content=b"[" * 9999, headers=sent)
    assert (answer.status_code, job.done) == (400, [])


def test_a_chosen_checkpoint_is_told_by_subtask(browser: TestClient) -> None:
    browser.get("/api/snapshot")
    rows = browser.get("/api/checkpoint?id=7&generation=1").json()["rows"]
    assert [row["number"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["outlier"]
    missing = browser.get("/api/checkpoint?id=8&generation=1")
    assert (missing.status_code, missing.json()["error"]) == (400, "nobody remembers checkpoint 8")
    assert browser.get("/api/checkpoint?id=x&generation=1").status_code == 400
    assert browser.get("/api/checkpoints?end=70").json()["first"] == 10


def test_assets_come_from_here_and_nothing_else_does(browser: TestClient) -> None:
    for path in ("app.js", "style.css", "vendor/htm-preact.js", "icon.svg"):
        assert browser.get(f"/page/{path}").status_code == 200
    assert browser.get("/page/../server.py").status_code == 404
    assert browser.get("/page/%2e%2e/server.py").status_code == 404


def test_a_server_for_everybody_knows_addresses_but_no_foreign_names() -> None:
    access = Access("0.0.0.0", 80, TOKEN)
    assert access.is_own_host("192.168.7.1")
    assert access.is_own_host("[::1]:80")
    assert not access.is_own_host("evil.example")
    assert not Access("127.0.0.1", 80, TOKEN).is_own_host("192.168.7.1")
