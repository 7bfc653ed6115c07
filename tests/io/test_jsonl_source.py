"""JSON Lines as a source."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import JsonlSource, Source, lines
from minirt.testing.contracts import SourceContract, read_all

RECORDS = [{"id": i, "text": "é" * (i % 7), "list": [i, None]} for i in range(300)]


class TestJsonlSource(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
        monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
        written = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
        (tmp_path / "a.jsonl").write_text("\n".join(written[:100]))
        (tmp_path / "b.json").write_text("\r\n".join(written[100:200]) + "\r\n\r\n  \r\n")
        (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(written[200:]).encode()))
        (tmp_path / "empty.jsonl").touch()
        return JsonlSource(tmp_path, split_bytes=1500)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return RECORDS


SCHEMA = pa.schema([("text", pa.string()), ("id", pa.int64())])


class TestColumns(SourceContract):
    """The same files; the last one leaves a field out of each record, and has one more."""

    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
        monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
        written = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
        (tmp_path / "a.jsonl").write_text("\n".join(written[:100]))
        (tmp_path / "b.json").write_text("\r\n".join(written[100:200]) + "\r\n\r\n  \r\n")
        less = [json.dumps({"more": [{}], "id": record["id"]}) for record in RECORDS[200:]]
        (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(less).encode()))
        return JsonlSource(tmp_path, schema=SCHEMA, split_bytes=1500)

    @pytest.fixture
    def expected(self) -> list[Any]:
        texts = [record["text"] for record in RECORDS[:200]] + [None] * 100
        return [{"text": text, "id": id} for id, text in enumerate(texts)]


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b"7",
        b'{"id": "x"}',
        b'{"id": 1',
        b'{"id": 1} {"id": 2}',
        b'{"id": 1.5}',
        b'{"id": 1}x',
    ],
)
def test_what_is_no_object_of_the_schema_is_told_apart_from_its_neighbours(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"id": 1}\n' + line + b'\n\n{"id": 3, "text": "c"}\n')
    source = JsonlSource(path, schema=SCHEMA, on_error="side_output")
    reader = source.open_split(source.plan_splits(1)[0], None)
    batch = reader.read()
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"text": None, "id": 1}, {"text": "c", "id": 3}]
    [bad] = reader.take_bad_records()
    assert (bad.location, bad.text, reader.skipped) == (f"{path}, byte 10", line.decode(), 1)
    reader.close()
    failing = JsonlSource(path, schema=SCHEMA)
    with pytest.raises(SourceDataError, match="byte 10: not valid JSON for the schema"):
        read_all(failing, failing.plan_splits(1)[0])


def test_a_field_that_must_be_there_is_missed(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"id": 1}\n{"text": "b"}\n')
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    source = JsonlSource(tmp_path, schema=schema, on_error="skip")
    assert read_all(source, source.plan_splits(1)[0]) == [{"id": 1}]


@pytest.mark.parametrize(
    "schema", [pa.schema([]), {"id": int}, pa.schema([("id", pa.int64()), ("id", pa.int64())]),
               pa.schema([("id", pa.month_day_nano_interval())])],
)  # fmt: skip
def test_a_schema_that_json_cannot_be_read_by_is_refused(tmp_path: Path, schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        JsonlSource(tmp_path, schema=schema)


GOOD_AND_BAD = b'{"a": 1}\n{"a": \n[1\n2]\n3 4\n{"a": 2}\nnull\n"\xff"\n'
BAD_TEXTS = ['{"a": ', "[1", "2]", "3 4", '"\ufffd"']


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(GOOD_AND_BAD)
    return path


def test_a_bad_line_fails_the_job_and_is_shown(damaged: Path) -> None:
    source = JsonlSource(damaged)
    with pytest.raises(SourceDataError, match=r"damaged\.jsonl, byte 9: not valid JSON .*a\": "):
        read_all(source, source.plan_splits(1)[0])


def test_bad_lines_are_skipped_and_counted(damaged: Path) -> None:
    source = JsonlSource(damaged, on_error="skip")
    reader = source.open_split(source.plan_splits(1)[0], None)
    assert reader.read() == [{"a": 1}, {"a": 2}, None]
    assert (reader.skipped, reader.take_bad_records()) == (5, [])
    reader.close()


def test_bad_lines_are_handed_over_once_with_place_and_text(damaged: Path) -> None:
    source = JsonlSource(damaged, on_error="side_output")
    assert source.side_errors
    reader = source.open_split(source.plan_splits(1)[0], None)
    assert reader.read() == [{"a": 1}, {"a": 2}, None]
    bad = reader.take_bad_records()
    assert [record.text for record in bad] == BAD_TEXTS
    assert [record.raw for record in bad] == [None, None, None, None, b'"\xff"']
    assert bad[1].location == f"{damaged}, byte 16"
    assert "JSON" in bad[1].error
    assert reader.take_bad_records() == []
    reader.close()


def test_what_merges_or_splits_lines_is_no_json_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"[1\n2]\n3,4\n5\n")
    source = JsonlSource(path, on_error="skip")
    assert read_all(source, source.plan_splits(1)[0]) == [5]


def test_a_line_that_goes_on_after_its_value_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2} {"a": 3}\n')
    source = JsonlSource(path, on_error="skip")
    assert read_all(source, source.plan_splits(1)[0]) == [{"a": 1}]


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="on_error must be one of fail, skip"):
        JsonlSource(tmp_path, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="split_bytes"):
        JsonlSource(tmp_path, split_bytes="many")
    with pytest.raises(ConfigurationError, match="nothing_here"):
        JsonlSource(tmp_path / "nothing_here").validate()
