"""Servers on this machine that speak as Google Cloud Storage and as Azure's Blob Storage do."""

from __future__ import annotations

import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import fsspec

from tests.needs import program

BUCKET = "minirt"
START_S = 60.0
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The well-known key of the well-known account of Azurite: it opens nothing else."""


@dataclass(frozen=True)
class Cloud:
    """A storage that is there: its protocol, and the storage options for it."""

    protocol: str
    options: dict[str, Any] = field(repr=False)

    def filesystem(self) -> Any:
        """A file system that sees what is there now."""
        return fsspec.filesystem(self.protocol, use_listings_cache=False, **self.options)

    def new_prefix(self) -> str:
        """A URL that nobody else uses."""
        return f"{self.protocol}://{BUCKET}/test-{uuid.uuid4()}"


@contextmanager
def gcs() -> Iterator[Cloud]:
    """fake-gcs-server."""
    port = _free_port()
    address = f"127.0.0.1:{port}"
    arguments = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    arguments += ["-backend", "memory", "-public-host", address, "-log-level", "error"]
    with _running([program("gcs", "fake-gcs-server"), *arguments], port):
        yield _with_bucket(Cloud("gs", {"endpoint_url": f"http://{address}", "token": "anon"}))


@contextmanager
def azure() -> Iterator[Cloud]:
    """Azurite, which does not know the newest versions of the interface."""
    port = _free_port()
    arguments = ["--silent", "--skipApiVersionCheck", "--inMemoryPersistence"]
    arguments += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    address = (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={_AZURE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )
    with _running([program("azure", "azurite-blob"), *arguments], port):
        yield _with_bucket(Cloud("abfs", {"connection_string": address}))


SERVERS = {"gcs": gcs, "azure": azure}


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + START_S
            while not _answers(port):
                assert server.poll() is None, f"{command[0]} has ended: {server.returncode}"
                assert time.monotonic() < until, f"{command[0]} does not answer"
                time.sleep(0.05)
            yield
        finally:
            server.kill()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _with_bucket(cloud: Cloud) -> Cloud:
    cloud.filesystem().mkdir(BUCKET)
    return cloud
