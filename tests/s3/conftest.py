"""One S3 server for all tests of this folder, and a prefix of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3.endpoint import Endpoint, s3_endpoint
from tests.s3.proxy import FaultyProxy


@pytest.fixture(scope="session")
def endpoint() -> Iterator[Endpoint]:
    with s3_endpoint() as found:
        yield found


@pytest.fixture(autouse=True)
def _environment(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """URLs need no options: clients find server and key in the environment, as users have it."""
    for name, value in endpoint.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix(endpoint: Endpoint) -> Iterator[str]:
    """A URL below which this test has its objects."""
    url = endpoint.new_prefix()
    yield url
    if endpoint.lasts:
        files = endpoint.filesystem()
        for path in files.find(url):
            files.rm_file(path)


@pytest.fixture
def proxy(endpoint: Endpoint) -> Iterator[FaultyProxy]:
    with FaultyProxy(endpoint.url) as running:
        yield running
