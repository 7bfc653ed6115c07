"""Folders to which files are added while they are read."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import msgpack
import pyarrow as pa
import pytest

import minirt as rt
from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import JsonlSource, Offset, SplitReader


def put(folder: Path, name: str, *ids: int) -> None:
    """A file that comes whole."""
    text = "".join(json.dumps({"id": id}) + "\n" for id in ids).encode()
    if name.endswith(".gz"):
        text = gzip.compress(text)
    if name.endswith(".zst"):
        text = pytest.importorskip("zstandard").compress(text)
    (folder / ".coming").write_bytes(text)
    (folder / ".coming").rename(folder / name)


def readers(source: JsonlSource, parts: int = 1) -> list[SplitReader]:
    source.validate()
    return [source.open_split(split, None) for split in source.plan_splits(parts)]


def ids(reader: SplitReader, reads: int = 12) -> list[int]:
    """What is there now; an empty batch is no end."""
    found: list[int] = []
    for _ in range(reads):
        batch = reader.read()
        assert batch is not None
        rows = batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
        found += [row["id"] for row in rows]
    return found


def test_files_are_read_once_as_they_come_and_compressed_ones_too(tmp_path: Path) -> None:
    [reader] = readers(JsonlSource(tmp_path, watch=0))
    assert ids(reader) == []
    put(tmp_path, "b.jsonl", 2, 3)
    put(tmp_path, "a.jsonl.gz", 1)
    put(tmp_path, "c.jsonl.zst", 4)
    (tmp_path / "other.txt").write_text("no JSON")
    assert ids(reader) == [1, 2, 3, 4]
    put(tmp_path, "a0.jsonl", 5)
    assert ids(reader) == [5]
    assert ids(reader) == []


def test_columns_come_from_watched_files_as_well(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", 1, 2)
    schema = pa.schema([("id", pa.int64())])
    [reader] = readers(JsonlSource(tmp_path, watch=0, schema=schema))
    assert ids(reader) == [1, 2]


def test_splits_share_the_files(tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path, f"{number}.jsonl", number)
    found = [ids(reader, 60) for reader in readers(JsonlSource(tmp_path, watch=0), 3)]
    assert sorted(id for part in found for id in part) == list(range(20))
    assert all(found)


def test_reading_on_from_any_offset_gives_the_same_whatever_has_come(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("b", "d"):
        put(folder, f"{name}.jsonl", *[ord(name)] * 3)
    source = JsonlSource(folder, watch=0)
    [split] = source.plan_splits(1)
    offsets: list[tuple[Offset, int]] = []
    seen: list[int] = []
    [reader] = readers(source)
    for _ in range(10):
        offsets.append((msgpack.packb(reader.offset), len(seen)))
        batch = reader.read()
        seen += [row["id"] for row in batch or []]
    put(folder, "a.jsonl", 1)
    put(folder, "c.jsonl", 2)
    for packed, count in offsets:
        restored = source.open_split(split, msgpack.unpackb(packed))
        rest = ids(restored)
        assert sorted(seen[:count] + rest) == [1, 2, 98, 98, 98, 100, 100, 100]
        chosen = msgpack.unpackb(packed)[1]
        if chosen is not None and rest[0] not in (1, 2):
            # Begun files go on first.
            assert rest[0] == ord(Path(chosen).stem)


def test_what_is_remembered_is_as_small_as_the_folder(tmp_path: Path) -> None:
    [reader] = readers(JsonlSource(tmp_path, watch=0))
    for number in range(10):
        put(tmp_path, f"{number}.jsonl", number)
    assert ids(reader, 40) == list(range(10))
    assert len(reader.offset[0]) == 80
    for number in range(9):
        (tmp_path / f"{number}.jsonl").unlink()
    assert ids(reader) == []
    assert len(reader.offset[0]) == 8


def test_bad_lines_are_counted_over_all_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"id": 1}\nbad\n')
    [reader] = readers(JsonlSource(tmp_path, watch=0, on_error="side_output"))
    assert ids(reader) == [1, 1]
    assert (reader.skipped, len(reader.take_bad_records())) == (2, 2)


def test_a_file_that_is_gone_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", 1)
    [reader] = readers(JsonlSource(tmp_path, watch=0))
    assert reader.read() == []
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceDataError, match=r"a\.jsonl"):
        reader.read()


@pytest.mark.parametrize("path", ["nowhere", "file.jsonl", "*.jsonl"])
def test_only_a_folder_can_be_watched(tmp_path: Path, path: str) -> None:
    put(tmp_path, "file.jsonl", 1)
    with pytest.raises(ConfigurationError, match="only a folder"):
        JsonlSource(tmp_path / path, watch="1s").validate()


@pytest.mark.processes
def test_a_job_reads_what_comes_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    out = rt.JsonlSink(tmp_path / "out")
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.1)

    def seen() -> list[int]:
        files = (tmp_path / "out").glob("part-*")
        return sorted(
            json.loads(line)["id"] for file in files for line in file.read_text().splitlines()
        )

    for run in range(2):
        env = rt.Environment("watching", parallelism=2)
        env.source(JsonlSource(incoming, watch=0.05), uid="in").sink(out, uid="out")
        for number in range(run * 10, run * 10 + 10):
            put(incoming, f"{number}.jsonl", number)
        job = env.start(checkpointing=checkpointing, restore="latest")
        try:
            end = time.monotonic() + 60
            while seen() != list(range(run * 10 + 10)) and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            job.cancel()
            job.wait_for_end()
        assert seen() == list(range(run * 10 + 10))
