"""Lines belong to the range that holds their first byte, whatever the bytes are."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import SourceDataError
from minirt.io import Split, lines
from minirt.io.files import InputFiles
from minirt.io.lines import LineReader

line = st.text("ab\r,é", max_size=6)


def read_range(
    path: Path, start: int, end: int | None, offset: int | None = None, quoted: bool = False
) -> list[bytes]:
    split = Split("s", {"path": str(path), "start": start, "end": end})
    reader = LineReader(InputFiles(path, (".txt",), compressed=True), split, offset, quoted=quoted)
    found = []
    try:
        while (block := reader.read_block()) is not None:
            found += reader.split_lines(block)
    finally:
        reader.close()
    return found


@given(st.lists(line), st.booleans(), st.lists(st.integers(0, 60)), st.integers(1, 9))
def test_adjoining_ranges_give_every_line_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    final_newline: bool,
    cuts: list[int],
    block_bytes: int,
) -> None:
    data = "\n".join(texts).encode() + (b"\n" if final_newline else b"")
    path = tmp_path_factory.getbasetemp() / "ranges.txt"
    path.write_bytes(data)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        patch.setattr(lines, "BLOCK_LINES", 2)
        found = [one for start, end in pairwise(bounds) for one in read_range(path, start, end)]
    assert found == (data.removesuffix(b"\n").split(b"\n") if data else [])


@given(st.lists(st.sampled_from(['"', "\n", "a", ","]), max_size=30), st.integers(1, 9))
def test_quoted_newlines_end_no_line(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], block_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "quoted.txt"
    path.write_bytes("".join(pieces).encode())
    expected, inside = [""], False
    for char in pieces:
        inside ^= char == '"'
        if char == "\n" and not inside:
            expected.append("")
        else:
            expected[-1] += char
    expected[-1] = expected[-1].removesuffix("\n")  # the end of the file ends an open quote
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        patch.setattr(lines, "BLOCK_LINES", 2)
        found = read_range(path, 0, None, quoted=True)
    assert [one.decode() for one in found if one] == [one for one in expected if one]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert read_range(path, 0, path.stat().st_size) == [b"one", b"two"]


def test_a_line_without_end_is_refused_before_it_fills_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 100)
    path = tmp_path / "blob.txt"
    path.write_bytes(b"\x00" * 5000)
    with pytest.raises(SourceDataError, match=r"blob\.txt, byte 0: a line is longer than 1000"):
        read_range(path, 0, 5000)


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_bytes(b"a\n")
    with pytest.raises(SourceDataError, match=r"short\.txt ends before byte 10"):
        read_range(path, 0, 20, offset=10)


def test_compressed_files_go_on_at_an_offset_of_their_content(tmp_path: Path) -> None:
    path = tmp_path / "z.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    assert read_range(path, 0, None, offset=4) == [b"two", b"three"]
    with pytest.raises(SourceDataError, match="ends before byte 99"):
        read_range(path, 0, None, offset=99)


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torn.txt.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-12])
    with pytest.raises(SourceDataError, match=r"cannot read .*torn\.txt\.gz"):
        read_range(path, 0, None)
