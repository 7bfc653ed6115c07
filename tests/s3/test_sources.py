"""The contract of sources, on S3, and what a reader makes of connections that break."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt.io import Source, files
from minirt.testing.contracts import SourceContract, read_all
from tests.s3.endpoint import Endpoint
from tests.s3.jobs import IMPATIENT
from tests.s3.proxy import Fault, FaultyProxy, Request

RECORDS = [{"id": id, "text": "é" * (id % 7)} for id in range(60)]


def write_lines(endpoint: Endpoint, prefix: str) -> None:
    store = endpoint.filesystem()
    for start in (0, 30):
        rows = [json.dumps(row, ensure_ascii=False) for row in RECORDS[start : start + 30]]
        store.pipe_file(f"{prefix}/in/{start:02}.jsonl", "\n".join(rows).encode())


class TestJsonlSource(SourceContract):
    @pytest.fixture
    def source(self, endpoint: Endpoint, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Source:
        monkeypatch.setattr(files, "MIN_SPLIT_BYTES", 300)
        write_lines(endpoint, prefix)
        return rt.JsonlSource(f"{prefix}/in", split_bytes=600)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return RECORDS


class TestParquetSource(SourceContract):
    @pytest.fixture
    def source(self, endpoint: Endpoint, prefix: str) -> Source:
        for start in (0, 30):
            buffer = io.BytesIO()
            rows = pa.Table.from_pylist(RECORDS[start : start + 30])
            pq.write_table(rows, buffer, row_group_size=10)
            endpoint.filesystem().pipe_file(f"{prefix}/in/{start:02}.parquet", buffer.getvalue())
        return rt.ParquetSource(f"{prefix}/in", storage_options=endpoint.options)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return RECORDS


@pytest.mark.parametrize("fault", [Fault.TORN, Fault.RESET, Fault.UNAVAILABLE])
def test_a_read_that_breaks_is_an_error_and_can_be_repeated(
    fault: Fault, endpoint: Endpoint, prefix: str, proxy: FaultyProxy
) -> None:
    write_lines(endpoint, prefix)
    options = {**endpoint.at(proxy.url).options, **IMPATIENT}
    source = rt.JsonlSource(f"{prefix}/in", storage_options=options)
    first, *_ = source.plan_splits(1)

    def always(request: Request) -> Fault | None:
        return fault if request.method == "GET" and not request.lists else None

    proxy.plan = always
    with pytest.raises(rt.SourceDataError, match=r"00\.jsonl"):
        read_all(source, first)
    proxy.plan = lambda request: None
    assert read_all(source, first) == RECORDS[:30]
