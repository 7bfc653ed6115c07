"""One server of each kind for all tests of this folder, and a prefix of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clouds.servers import SERVERS, Cloud


@pytest.fixture(scope="session", autouse=True)
def _plain_buckets() -> Iterator[None]:
    """gcsfs asks by another protocol, which the server does not speak, what kind a bucket is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        yield


@pytest.fixture(scope="session", params=SERVERS)
def cloud(request: pytest.FixtureRequest, _plain_buckets: None) -> Iterator[Cloud]:
    with SERVERS[request.param]() as found:
        yield found


@pytest.fixture
def prefix(cloud: Cloud) -> str:
    """A URL below which this test has its objects."""
    return cloud.new_prefix()
