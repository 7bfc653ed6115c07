"""Where the tests find S3: a server that is given in the environment, or one of their own.

TEST_S3_ENDPOINT, for example http://127.0.0.1:9000, with TEST_S3_KEY and
TEST_S3_SECRET. The bucket TEST_S3_BUCKET is made if it is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
import s3fs  # noqa: F401 - so that programs that tests start have it already, as it takes long.

ROOT = Path(__file__).parents[2]
KEY, SECRET, BUCKET = "minirt", "minirt-secret", "minirt"
"""The defaults; docker-compose.yml has the same."""


@dataclass(frozen=True)
class Endpoint:
    """An S3 server, and who may use it."""

    url: str
    key: str
    secret: str
    bucket: str
    lasts: bool = False
    """Whether it outlives the tests."""

    @property
    def options(self) -> dict[str, Any]:
        """The storage options for it."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.url}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say the same to every client."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def at(self, url: str) -> Endpoint:
        """The same through another address, such as that of a proxy."""
        return replace(self, url=url)

    def filesystem(self) -> Any:
        """A file system that sees what is there now."""
        return fsspec.filesystem("s3", use_listings_cache=False, **self.options)

    def new_prefix(self) -> str:
        """A URL that nobody else uses."""
        return f"s3://{self.bucket}/test-{uuid.uuid4()}"


@contextmanager
def s3_endpoint() -> Iterator[Endpoint]:
    """The endpoint of the environment, or an embedded server for as long as it is needed."""
    url = os.environ.get("TEST_S3_ENDPOINT")
    key = os.environ.get("TEST_S3_KEY", KEY)
    secret = os.environ.get("TEST_S3_SECRET", SECRET)
    bucket = os.environ.get("TEST_S3_BUCKET", BUCKET)
    if url is not None:
        yield _with_bucket(Endpoint(url, key, secret, bucket, lasts=True))
        return
    command = [sys.executable, "-m", "tests.s3.server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            yield _with_bucket(Endpoint(f"http://127.0.0.1:{port}", key, secret, bucket))
        finally:
            server.kill()


def _with_bucket(endpoint: Endpoint) -> Endpoint:
    endpoint.filesystem().makedirs(endpoint.bucket, exist_ok=True)
    return endpoint
