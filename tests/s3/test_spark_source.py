"""Spark's data source on S3; without a session, since all that Spark adds is where it is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minirt.errors import ConfigurationError
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.s3.endpoint import Endpoint
from tests.storage.scenario import complete, started

pytestmark = pytest.mark.spark


def source(**options: str) -> Any:
    from minirt_connectors.spark.checkpoints_source import CheckpointsSource

    return CheckpointsSource(options)


def test_storage_options_are_a_json_object(
    endpoint: Endpoint, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = CheckpointStorage(ObjectStore(prefix), inline_bytes_max=0)
    complete(storage, 7, started(storage))
    for name in endpoint.environment:
        monkeypatch.delenv(name)
    found = source(path=prefix, what="history", storage_options=json.dumps(endpoint.options))
    reader = found.reader(found.schema())
    (batch,) = [each for part in reader.partitions() for each in reader.read(part)]
    assert batch.column("checkpoint_id").to_pylist() == [7]
    assert endpoint.secret not in repr(vars(reader))


@pytest.mark.parametrize("text", ["key=secret", "[1]", "{"])
def test_other_storage_options_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a JSON object") as caught:
        source(path="s3://a/b", storage_options=text).schema()
    assert text not in str(caught.value).removesuffix('{"anon": true}')
