"""Folders to which files are added while they are read."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import CsvSource, JsonlSource, Offset, ParquetSource, Source, SplitReader, watching

SCHEMA = pa.schema([("id", pa.int64())])
SOURCES: dict[str, Callable[..., Source]] = {
    "jsonl": JsonlSource,
    "csv": partial(CsvSource, types={"id": int}),
    "parquet": partial(ParquetSource, schema=SCHEMA),
}

each_kind = pytest.mark.parametrize("kind", SOURCES)


def put(folder: Path, name: str, *ids: int) -> None:
    """A file that comes whole."""
    if ".parquet" in name:
        pq.write_table(pa.table({"other": [0] * len(ids), "id": list(ids)}), folder / ".coming")
        (folder / ".coming").rename(folder / name)
        return
    lines = ["other,id", *(f"x,{id}" for id in ids)]
    if ".csv" not in name:
        lines = [json.dumps({"id": id}) for id in ids]
    text = "".join(f"{line}\n" for line in lines).encode()
    if name.endswith(".gz"):
        text = gzip.compress(text)
    if name.endswith(".zst"):
        text = pytest.importorskip("zstandard").compress(text)
    (folder / ".coming").write_bytes(text)
    (folder / ".coming").rename(folder / name)


def readers(source: Source, parts: int = 1) -> list[SplitReader]:
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


@each_kind
def test_files_are_read_once_as_they_come_and_compressed_ones_too(
    tmp_path: Path, kind: str
) -> None:
    source = SOURCES[kind](tmp_path, watch=0)
    assert not source.bounded
    [reader] = readers(source)
    assert ids(reader) == []
    whole = kind == "parquet"  # It is compressed inside.
    put(tmp_path, f"b.{kind}", 2, 3)
    put(tmp_path, f"a.{kind}" if whole else f"a.{kind}.gz", 1)
    put(tmp_path, f"c.{kind}" if whole else f"c.{kind}.zst", 4)
    (tmp_path / "other.txt").write_text("no JSON")
    assert ids(reader) == [1, 2, 3, 4]
    put(tmp_path, f"a0.{kind}", 5)
    assert ids(reader) == [5]
    assert ids(reader) == []


def test_columns_come_from_watched_files_as_well(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", 1, 2)
    schema = pa.schema([("id", pa.int64())])
    [reader] = readers(JsonlSource(tmp_path, watch=0, schema=schema))
    assert ids(reader) == [1, 2]


@each_kind
def test_splits_share_the_files(tmp_path: Path, kind: str) -> None:
    for number in range(20):
        put(tmp_path, f"{number}.{kind}", number)
    found = [ids(reader, 60) for reader in readers(SOURCES[kind](tmp_path, watch=0), 3)]
    assert sorted(id for part in found for id in part) == list(range(20))
    assert all(found)


@each_kind
def test_reading_on_from_any_offset_gives_the_same_whatever_has_come(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("b", "d"):
        put(folder, f"{name}.{kind}", *[ord(name)] * 3)
    source = SOURCES[kind](folder, watch=0)
    [split] = source.plan_splits(1)
    offsets: list[tuple[Offset, int]] = []
    seen: list[int] = []
    [reader] = readers(source)
    for _ in range(10):
        offsets.append((msgpack.packb(reader.offset), len(seen)))
        seen += ids(reader, 1)
    put(folder, f"a.{kind}", 1)
    put(folder, f"c.{kind}", 2)
    for packed, count in offsets:
        restored = source.open_split(split, msgpack.unpackb(packed))
        rest = ids(restored)
        assert sorted(seen[:count] + rest) == [1, 2, 98, 98, 98, 100, 100, 100]
        chosen = msgpack.unpackb(packed)[1]
        if chosen is not None and rest[0] not in (1, 2):
            # Begun files go on first.
            assert rest[0] == ord(Path(chosen).stem)


def test_what_is_remembered_is_as_small_as_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_FORGET_AFTER_S", 0.0)
    [reader] = readers(JsonlSource(tmp_path, watch=0))
    for number in range(10):
        put(tmp_path, f"{number}.jsonl", number)
    assert ids(reader, 40) == list(range(10))
    assert len(reader.offset[0]) == 80
    for number in range(9):
        (tmp_path / f"{number}.jsonl").unlink()
    assert ids(reader) == []
    assert len(reader.offset[0]) == 8


@pytest.mark.parametrize("part", ["the folder", "all files", "one file"])
def test_what_is_away_for_a_moment_is_not_read_again(tmp_path: Path, part: str) -> None:
    """As a mount, or a folder that is filled anew file by file."""
    folder, away = tmp_path / "in", tmp_path / "away"
    folder.mkdir()
    away.mkdir()
    [reader] = readers(JsonlSource(folder, watch=0))
    for number in range(3):
        put(folder, f"{number}.jsonl", number)
    assert ids(reader) == [0, 1, 2]
    moved = [folder] if part == "the folder" else sorted(folder.iterdir())
    if part == "one file":
        del moved[1:]
    for path in moved:
        path.rename(away / path.name)
    assert ids(reader) == []
    for path in moved:
        (away / path.name).rename(path)
    put(folder, "3.jsonl", 3)
    assert ids(reader) == [3]


def test_a_file_that_has_grown_since_it_was_read_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [reader] = readers(JsonlSource(tmp_path, watch=0))
    put(tmp_path, "users.jsonl", 1)
    put(tmp_path, "others.jsonl", 2)
    assert ids(reader) == [2, 1]
    with (tmp_path / "users.jsonl").open("a") as file:
        file.write('{"id": 3}\n')
    assert ids(reader) == []
    assert ids(reader) == []
    [told] = caplog.messages
    assert f"{tmp_path / 'users.jsonl'} has 20 bytes now and had 10 when it was read" in told


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


@each_kind
@pytest.mark.parametrize("path", ["nowhere", "file", "*"])
def test_only_a_folder_can_be_watched(tmp_path: Path, path: str, kind: str) -> None:
    put(tmp_path, f"file.{kind}", 1)
    path = path if path == "nowhere" else f"{path}.{kind}"
    with pytest.raises(ConfigurationError, match="only a folder"):
        SOURCES[kind](tmp_path / path, watch="1s").validate()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: CsvSource(at, watch=1), "needs types"),
        (lambda at: CsvSource(at, watch=1, columns=["id", "x"], types={"id": int}), r"of \['x'\]"),
        (
            lambda at: CsvSource(at, watch=1, columns=["id"], types={"idd": int}),
            "did you mean 'id'",
        ),
        (lambda at: CsvSource(at, watch=1, header=False, types={"id": int}), "columns="),
        (lambda at: ParquetSource(at, watch=1), "needs a schema"),
        (lambda at: ParquetSource(at, watch=1, schema={"id": int}), "schema must be"),
        (lambda at: ParquetSource(at, watch=1, schema=pa.schema([])), "at least one"),
        (lambda at: ParquetSource(at, schema=SCHEMA, columns=["id"]), "leave out columns"),
        (lambda at: ParquetSource(at, schema=pa.schema([*SCHEMA, *SCHEMA])), "twice: id, id"),
    ],
)
def test_columns_must_be_known_before_files_come(
    tmp_path: Path, make: Callable[[Path], Source], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(tmp_path)


def test_files_without_a_header_and_of_another_shape(tmp_path: Path) -> None:
    source = CsvSource(tmp_path, watch=0, header=False, columns=["id"], types={"id": "int64"})
    [reader] = readers(source)
    (tmp_path / "a.csv").write_text("1\n2\n")
    assert ids(reader) == [1, 2]
    for kind, wrong in (("csv", "idd\n1\n"), ("parquet", "")):
        folder = tmp_path / kind
        folder.mkdir()
        [reader] = readers(SOURCES[kind](folder, watch=0))
        if kind == "csv":
            (folder / "a.csv").write_text(wrong)
        else:
            pq.write_table(pa.table({"idd": [1]}), folder / "a.parquet")
        with pytest.raises(SourceDataError, match=rf"a\.{kind} has no column id"):
            ids(reader)


def test_a_schema_spares_the_look_at_the_first_file(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 1)
    put(tmp_path, "b.parquet", 2)
    schema = pa.schema([("id", pa.float64())])
    source = ParquetSource(tmp_path, schema=schema)
    assert source.bounded
    assert source.schema() == schema
    (tmp_path / "0.parquet").write_bytes(b"no Parquet")
    assert source.schema() == schema


@pytest.mark.processes
@each_kind
def test_a_job_reads_what_comes_and_goes_on_after_a_stop(tmp_path: Path, kind: str) -> None:
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
        env.source(SOURCES[kind](incoming, watch=0.05), uid="in").sink(out, uid="out")
        for number in range(run * 10, run * 10 + 10):
            put(incoming, f"{number}.{kind}", number)
        job = env.start(checkpointing=checkpointing, restore="latest")
        try:
            end = time.monotonic() + 60
            while seen() != list(range(run * 10 + 10)) and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            job.cancel()
            job.wait_for_end()
        assert seen() == list(range(run * 10 + 10))
