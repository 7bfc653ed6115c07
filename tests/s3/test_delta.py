"""Delta tables on S3, read back with DuckDB from a copy of what is there."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip("duckdb", reason="duckdb, which the tests read with, is not installed")
pytest.importorskip(
    "duckdb_extension_delta", reason="the extension delta of duckdb is not installed"
)

import minirt as rt
from minirt.data.batch import Rows
from minirt.io import Sink
from minirt.io.base import (
    Committable,
    CommitterContext,
    SinkCommitter,
    SinkContext,
    SinkIdentity,
)
from minirt.storage.store import ObjectStore
from minirt.testing.sinks import SinkTrial, check_sink
from minirt_connectors.delta import DeltaSink, DeltaSource
from tests.coordinators import check_two_coordinators
from tests.jobs import named_rows
from tests.s3.endpoint import Endpoint
from tests.s3.refusing import refusing
from tests.tables.duck import delta_rows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def options(endpoint: Endpoint) -> dict[str, str]:
    """What `deltalake` needs for a server that is not that of Amazon."""
    return {
        "AWS_ACCESS_KEY_ID": endpoint.key,
        "AWS_SECRET_ACCESS_KEY": endpoint.secret,
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def rows(endpoint: Endpoint, url: str, copy: Path, query: str = "SELECT id FROM t") -> list[Any]:
    """What DuckDB finds in a copy of the objects; nothing where there is no table yet."""
    files = endpoint.filesystem()
    if not files.exists(f"{url}/_delta_log"):
        return []
    shutil.rmtree(copy, ignore_errors=True)
    files.get(f"{url}/", f"{copy}/", recursive=True)
    return delta_rows(copy, query)


class S3Trial(SinkTrial):
    """Each life has a table of its own."""

    def __init__(self, endpoint: Endpoint, prefix: str, folder: Path) -> None:
        self._endpoint = endpoint
        self._prefix = prefix
        self._folder = folder
        self._numbers = itertools.count()

    def begin(self) -> None:
        self._table = f"{self._prefix}/table-{next(self._numbers)}"

    def sink(self) -> Sink:
        return DeltaSink(self._table, schema=SCHEMA, storage_options=options(self._endpoint))

    def visible(self) -> Sequence[int]:
        return [id for (id,) in rows(self._endpoint, self._table, self._folder / "copy")]


def test_the_kit_finds_nothing(endpoint: Endpoint, prefix: str, tmp_path: Path) -> None:
    check_sink(S3Trial(endpoint, prefix, tmp_path), runs=4)


def test_of_two_coordinators_one_ends_with_an_error(
    endpoint: Endpoint, prefix: str, tmp_path: Path
) -> None:
    check_two_coordinators(
        S3Trial(endpoint, prefix, tmp_path), ObjectStore(str(tmp_path / "staged"))
    )


@pytest.mark.processes
def test_jobs_write_a_table_and_read_it(endpoint: Endpoint, prefix: str, tmp_path: Path) -> None:
    url, own = f"{prefix}/table", options(endpoint)
    sink = DeltaSink(url, schema=SCHEMA, storage_options=own)
    checkpointing = rt.Checkpointing(
        f"{prefix}/chk", interval=0.3, storage_options=endpoint.options
    )
    named_rows(sink, 2000, 0.0002, job="to-delta").execute(checkpointing=checkpointing)
    counted = "SELECT count(*), count(DISTINCT id), max(name) FROM t"
    assert rows(endpoint, url, tmp_path / "copy", counted) == [(2000, 2000, "row 999")]
    found = rt.CollectSink()
    env = rt.Environment("from-delta", parallelism=2)
    source = DeltaSource(url, bounded=True, storage_options=own)
    env.source(source, uid="in").sink(found, uid="out")
    env.execute(runner="inline")
    assert sorted(row["id"] for row in found.rows) == list(range(2000))


def test_of_jobs_that_commit_at_once_each_record_is_there_once(
    endpoint: Endpoint, prefix: str, tmp_path: Path
) -> None:
    """Who finds its version taken takes the next; a commit that is repeated changes nothing."""
    url = f"{prefix}/table"
    sink = DeltaSink(url, schema=SCHEMA, storage_options=options(endpoint))
    sink.validate()
    begin = Barrier(3, timeout=60)

    def commit_five(number: int) -> None:
        staging = ObjectStore(str(tmp_path / f"staged-{number}"))
        job = SinkIdentity(f"job {number}", "out")
        committer = sink.open_committer(CommitterContext(job, "out", 1, staging))
        for checkpoint_id in range(1, 6):
            writer = sink.open_writer(SinkContext(job, "out", 0, 1, 1, staging))
            writer.write(Rows([{"id": 10 * number + checkpoint_id, "name": job.uid}]))
            ready = writer.prepare(checkpoint_id)
            assert ready.finish is not None
            ready.finish()
            writer.close()
            own = [Committable(checkpoint_id, handle) for handle in ready.handles]
            begin.wait()
            for _ in range(2):
                until_committed(committer, own)
        committer.close()

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(commit_five, number) for number in range(3)]:
            done.result(120)
    expected = [10 * number + n for number in range(3) for n in range(1, 6)]
    assert sorted(id for (id,) in rows(endpoint, url, tmp_path / "copy")) == expected


def until_committed(committer: SinkCommitter, committables: Sequence[Committable]) -> None:
    """As a job does: a commit that fails is repeated."""
    for _ in range(20):
        with suppress(rt.StorageError):
            committer.commit(committables)
            return
    raise AssertionError("nothing was committed")


def told(caught: pytest.ExceptionInfo[rt.MinirtError]) -> None:
    """It says of which table, and what the server has said, in one line without secrets."""
    said = str(caught.value)
    assert said.startswith("s3://minirt/table: cannot ")
    assert "InvalidAccessKeyId" in said
    assert "secret" not in said
    assert "\n" not in said


def wrong(endpoint: Endpoint, url: str) -> dict[str, str]:
    return {**options(endpoint.at(url)), "AWS_SECRET_ACCESS_KEY": "another-secret"}


def test_wrong_credentials_are_refused_in_time_and_not_shown(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")  # It would count for more than the option.
    with refusing("everything") as url:
        own = wrong(endpoint, url)
        for end in (
            DeltaSink("s3://minirt/table", schema=SCHEMA, storage_options=own),
            DeltaSource("s3://minirt/table", storage_options=own),
        ):
            began = time.monotonic()
            with pytest.raises(rt.ConfigurationError) as caught:
                end.validate()
            assert time.monotonic() - began < 10
            told(caught)


@pytest.mark.processes
def test_who_may_only_read_is_told_when_the_job_starts(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    with refusing("writing") as url:
        sink = DeltaSink("s3://minirt/table", schema=SCHEMA, storage_options=wrong(endpoint, url))
        sink.validate()
        with pytest.raises(rt.JobFailedError) as caught:
            named_rows(sink, 10, job="to-delta").execute(
                checkpointing=rt.Checkpointing(tmp_path), restart=rt.Restart.none()
            )
        assert "s3://minirt/table: cannot create the table" in str(caught.value)
        assert "InvalidAccessKeyId" in str(caught.value)
        assert "secret" not in str(caught.value)
