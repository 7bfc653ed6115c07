"""State that is larger than 32 bits can say, with limits and lengths that are made up."""

from __future__ import annotations

import io
import struct

import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.codec import pack_values
from minirt.data.errors import MalformedDataError
from minirt.state import frozen, segments
from minirt.state.array_table import ArrayTable
from minirt.state.key_columns import key_column
from minirt.state.keyed_changes import KEYED_CHANGES, unpack_changes
from minirt.state.sections import (
    HEAD_BYTES,
    join_sections,
    pack_section,
    read_lengths,
    section_bytes,
    unpack_columns,
    unpack_section,
)

ROWS = 2_000


class Long(bytes):
    """Says that it has more bytes than 32 bits can count."""

    def __len__(self) -> int:
        return 5 << 32


def old(kind: bytes, lengths: list[int], *parts: bytes) -> bytes:
    """A section of version 1."""
    return b"".join(
        (struct.pack("<4sBxxx", kind, 1), struct.pack(f"<{len(lengths)}I", *lengths), *parts)
    )


def test_lengths_may_be_beyond_32_bits() -> None:
    joined = join_sections(b"KIND", [Long(b"a"), b"b"])
    assert read_lengths(2, io.BytesIO(joined[HEAD_BYTES:]), 2) == (5 << 32, 1)


def test_sections_of_version_1_are_read() -> None:
    columns = [pack_values([1, "two"]), pack_values(["one", 2.0])]
    table = old(b"KEYD", [len(column) for column in columns], *columns)
    assert list(unpack_section(b"KEYD", table)) == [([1, "two"], ["one", 2.0])]
    nothing = old(b"GONE", [])
    total = struct.pack("<Q", 2)
    parts = (total, nothing, table)
    changes = old(KEYED_CHANGES, [len(part) for part in parts], *parts)
    assert unpack_changes(changes) == ([], table)


@pytest.mark.parametrize("version", [0, 4])
def test_other_versions_are_refused(version: int) -> None:
    section = bytearray(pack_section(b"KEYD", [1], [2]))
    section[4] = version
    with pytest.raises(MalformedDataError, match=f"version {version} cannot be read"):
        list(unpack_section(b"KEYD", bytes(section)))


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.binary(), pa.int64()])
@pytest.mark.parametrize("null", [None, "5000"])
def test_many_keys_are_held_in_few_arrays(type: pa.DataType, null: str | None) -> None:
    """Beyond the first room for keys and for their bytes, some of them null."""
    texts = [None if str(n) == null else str(n) for n in range(6000)]
    keys, slots = pa.array(texts, pa.string()).cast(type), np.arange(6000)
    column = key_column(type)
    for start in range(0, 6000, 1500):
        column.append(keys.slice(start, 1500))
    found = column.take(slots)
    assert found.equals(keys)
    assert column.equal(slots, found).all()


def table() -> ArrayTable:
    return ArrayTable(["key"], [rt.Count("n"), rt.Sum("value", "total")], "test")


def records(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": [f"key {n}" for n in range(start, stop)], "value": list(range(start, stop))}
    )


def test_a_table_is_stored_and_loaded_in_pieces_that_are_never_put_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frozen, "PIECE_SLOTS", 300)
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)
    first = table()
    first.add(records(0, ROWS), None)
    stored = first.snapshot()
    assert stored is not None
    section = section_bytes(stored)
    assert len(unpack_columns(b"ARRY", section)) > 1
    again = table()
    again.restore(section, None, 128)
    assert len(again) == ROWS
    found, _ = again.results(again.add(records(0, ROWS), None))
    assert sorted(found.column("key").to_pylist()) == sorted(f"key {n}" for n in range(ROWS))
    assert set(found.column("n").to_pylist()) == {2}
