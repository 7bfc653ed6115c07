"""A compressed file that was cut short is refused, whatever compressed it and whichever source reads it."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import CsvSource, JsonlSource, Source
from minirt.io.base import Split
from minirt.testing.contracts import read_all

Compress = Callable[[bytes], bytes]
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64())])


def _zipped(text: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in", text)
    return stream.getvalue()


def _by(module: str, name: str = "compress") -> Compress:
    def compress(text: bytes) -> bytes:
        pytest.importorskip(module.partition(".")[0])
        result: bytes = getattr(importlib.import_module(module), name)(text)
        return result

    return compress


CODECS: dict[str, Compress] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": _zipped,
    "zst": _by("zstandard"),
    "lz4": _by("lz4.frame"),
}


def _csv(ids: range) -> bytes:
    return b"id,amount\n" + b"".join(b"%d,%d\n" % (n, 7919 * n % 100_000) for n in ids)


def _jsonl(ids: range) -> bytes:
    return b"".join(b'{"id":%d,"amount":%d}\n' % (n, 7919 * n % 100_000) for n in ids)


SOURCES: dict[str, tuple[Callable[[range], bytes], Callable[[Path], Source[Any]]]] = {
    "csv": (_csv, CsvSource),
    "csv-multiline": (_csv, lambda path: CsvSource(path, multiline=True)),
    "jsonl": (_jsonl, JsonlSource),
    "jsonl-columns": (_jsonl, lambda path: JsonlSource(path, schema=SCHEMA)),
}
IDS = range(3000)
"""So many that a compressed file has several blocks of the decompressed text."""


def rows_of(source: Source[Any]) -> list[Any]:
    return [row for split in source.plan_splits(1) for row in read_all(source, split)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_that_is_whole_is_read_and_one_that_is_cut_is_refused(
    tmp_path: Path, codec: str, kind: str
) -> None:
    text, make = SOURCES[kind]
    whole = CODECS[codec](text(IDS))
    path = tmp_path / f"in.{kind.partition('-')[0]}.{codec}"
    path.write_bytes(whole)
    assert [row["id"] for row in rows_of(make(path))] == list(IDS)

    @given(st.integers(1, len(whole) - 1))
    def cut(end: int) -> None:
        path.write_bytes(whole[:end])
        with pytest.raises((SourceDataError, ConfigurationError), match=path.name):
            rows_of(make(path))

    cut()


@pytest.mark.parametrize("codec", CODECS)
def test_a_watched_file_that_is_cut_is_refused(tmp_path: Path, codec: str) -> None:
    whole = CODECS[codec](_jsonl(IDS))
    (tmp_path / f"in.jsonl.{codec}").write_bytes(whole[: len(whole) * 2 // 3])
    source = JsonlSource(tmp_path, watch="1ms")
    [split] = source.plan_splits(1)
    reader = source.open_split(split, None)
    with closing(reader), pytest.raises(SourceDataError, match=f"in.jsonl.{codec}"):
        any(reader.read() is None for _ in range(100))


@pytest.mark.parametrize("codec", ["gz", "bz2", "xz", "zst", "lz4"])
@given(st.lists(st.binary(max_size=2000) | st.just(b"x" * 100_000), min_size=1, max_size=4))
def test_frames_behind_each_other_are_one_text(
    tmp_path_factory: pytest.TempPathFactory, codec: str, parts: list[bytes]
) -> None:
    from minirt.io.files import InputFiles

    path = tmp_path_factory.getbasetemp() / f"frames.txt.{codec}"
    path.write_bytes(b"".join(map(CODECS[codec], parts)))
    stream, opened = InputFiles(path, (".txt",), compressed=True).open(str(path))
    with opened:
        assert stream.read() == b"".join(parts)


def test_a_frame_of_zstd_that_was_flushed_and_never_ended_is_refused(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    shipper = zstandard.ZstdCompressor().compressobj()
    flushed = shipper.compress(_jsonl(IDS)) + shipper.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    path = tmp_path / "in.jsonl.zst"
    path.write_bytes(flushed)
    with pytest.raises(SourceDataError, match=r"in\.jsonl\.zst.* before the end of its last frame"):
        rows_of(JsonlSource(path))


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_an_archive_of_several_files_is_refused(tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "in.jsonl.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, '{"id": 1}\n')
    with pytest.raises(SourceDataError, match=f"holds {len(names)} files"):
        read_all(JsonlSource(path), Split("in", {"path": str(path), "start": 0, "end": None}))


def test_reading_goes_on_within_a_compressed_file(tmp_path: Path) -> None:
    for codec in ("zst", "gz"):
        path = tmp_path / f"in.jsonl.{codec}"
        path.write_bytes(CODECS[codec](_jsonl(IDS)))
        source = JsonlSource(path)
        [split] = source.plan_splits(1)
        text = _jsonl(IDS)
        at = text.index(b"\n", 20_000) + 1
        rest = [row["id"] for row in read_all(source, split, at)]
        assert rest == list(IDS)[-len(rest) :]
        assert len(rest) == text[at:].count(b"\n")
