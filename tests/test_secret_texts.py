"""No message of minirt holds a password or a signature of a URL, whoever words the message."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt import errors, secret_texts
from minirt.errors import MinirtError, StorageError, SupersededError
from minirt.filesystems import check_url
from minirt.monitoring.logs import logger_of
from minirt.secret_texts import HIDDEN, register_url, without_secrets

URL = "http://bob:hunter2@host:1/x.jsonl?X-Signature=abc%2Fdef&expires=7"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_texts, "_instead_of", {})


def test_a_url_is_told_without_its_secrets() -> None:
    register_url(URL)
    assert without_secrets(f"no input at {URL}, byte 7") == (
        f"no input at http://{HIDDEN}@host:1/x.jsonl?{HIDDEN}, byte 7"
    )


def test_the_words_of_a_client_library_hide_the_password_alone() -> None:
    register_url("ftp://bob:p%40ss-word@host/x")
    assert without_secrets("530 bob may not enter with p@ss-word") == (
        f"530 bob may not enter with {HIDDEN}"
    )


@pytest.mark.parametrize(
    "url",
    [
        "abfs://container@account.dfs.core.windows.net/x",
        "s3://bucket/day=1?x",
        "/a:b@c/x?y=1",
        "a@b",
    ],
)
def test_what_is_no_secret_stays(url: str) -> None:
    register_url(url)
    assert without_secrets(url) == url


@given(st.text())
def test_text_without_a_registered_secret_stays(text: str) -> None:
    register_url("http://u:e0a7c3f1@host/x")
    assert without_secrets(text) == text


ERRORS = [
    found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, MinirtError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_leaves_secrets_out(kind: type[MinirtError]) -> None:
    register_url(URL)
    if issubclass(kind, StorageError):
        error: MinirtError = kind("cannot write", URL)
    elif issubclass(kind, SupersededError):
        error = kind(by=URL)
    else:
        error = kind(f"cannot read {URL}")
    assert "hunter2" not in str(error)
    assert "abc%2Fdef" not in str(error)
    assert "host:1/x.jsonl" in str(error)


def test_what_is_logged_leaves_secrets_out(caplog: pytest.LogCaptureFixture) -> None:
    register_url(URL)
    with caplog.at_level(logging.WARNING, "minirt.test"):
        logger_of("test").warning("%s holds records", URL)
    assert caplog.messages == [f"http://{HIDDEN}@host:1/x.jsonl?{HIDDEN} holds records"]


@pytest.mark.parametrize("text", ["s3:/bucket/x", "s3:bucket", "S3:/b", "file:/tmp/x", "dbfs:/x"])
def test_a_url_that_lacks_a_slash_is_refused(text: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="did you mean"):
        check_url(text)


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/x", "simplecache::s3://b/x", "./s3:/x", "/a:b/c", "day=1:2/x", "C:/x", "x"],
)
def test_other_paths_and_urls_are_taken(text: str) -> None:
    assert check_url(text) == text
