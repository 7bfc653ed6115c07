"""Stores and catalogs that take a connection and say nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import minirt as rt
from minirt.io import Sink
from minirt_connectors.delta import DeltaSink
from minirt_connectors.delta import table as delta_table
from minirt_connectors.iceberg import IcebergSink
from minirt_connectors.iceberg import table as iceberg_table

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=20) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def refused(sink: Sink, message: str) -> None:
    began = time.monotonic()
    with pytest.raises(rt.ConfigurationError, match=message) as caught:
        sink.validate()
    assert time.monotonic() - began < 10
    assert "very-secret" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "↳" not in str(caught.value)


def test_a_store_of_delta_tables_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert delta_table._QUICK["retry_timeout"] == "8s"
    monkeypatch.setattr(delta_table, "_QUICK", {**delta_table._QUICK, "timeout": "1s"})
    options = {
        "AWS_ENDPOINT_URL": silent,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
    }
    refused(
        DeltaSink("s3://bucket/table", schema=SCHEMA, storage_options=options), "after 1 retries"
    )


def test_a_rest_catalog_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert iceberg_table._FIRST_ANSWER_S < 9
    monkeypatch.setattr(iceberg_table, "_FIRST_ANSWER_S", 1.0)
    for properties in ({"type": "rest", "uri": silent, "token": "very-secret"}, {"uri": silent}):
        refused(IcebergSink(properties, "db.t"), "db.t: cannot open the table: .*timed out")
