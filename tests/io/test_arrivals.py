"""Values arrive in files, and from files, as they were sent; or the record is refused."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import BadRecordError, SourceDataError
from minirt.io import (
    CsvSource,
    JsonlSource,
    ParquetSink,
    ParquetSource,
    Sink,
    Source,
    lines,
)
from minirt.io import (
    csv as csv_module,
)
from minirt.testing.contracts import read_all
from minirt_connectors.database import DatabaseSink
from tests.contracts.arrivals import (
    MORE_TYPES,
    PLAIN_TYPES,
    ColumnsSourceArrivals,
    SinkArrivals,
    place,
)
from tests.data.saying import said, said_by_all, same

__all__ = ["place"]


class TestParquetSink(SinkArrivals):
    TYPES = (*PLAIN_TYPES, *MORE_TYPES)

    def new_sink(self, folder: Path, schema: pa.Schema) -> Sink:
        return ParquetSink(folder / "out", schema=schema)

    def found(self, folder: Path) -> list[Any]:
        [path] = (folder / "out").glob("*.parquet")
        return said_by_all(pq.read_table(path).sort_by("id")["v"])


class TestDatabaseSink(SinkArrivals):
    """Of the values that SQLite has: it knows whole numbers, floats, texts and bytes."""

    TYPES = (pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary())

    def new_sink(self, folder: Path, schema: pa.Schema) -> Sink:
        with closing(sqlite3.connect(folder / "out.db")) as db:
            db.execute("CREATE TABLE results (id integer, v)")
        return DatabaseSink("sqlite3", {"database": str(folder / "out.db")}, "results", schema)

    def found(self, folder: Path) -> list[Any]:
        with closing(sqlite3.connect(folder / "out.db")) as db:
            rows = db.execute("SELECT v FROM results ORDER BY id").fetchall()
        return [said(value) for (value,) in rows]


class TestParquetSource(ColumnsSourceArrivals):
    def new_source(self, folder: Path, array: pa.Array, schema: pa.Schema) -> Source[Any] | None:
        table = pa.table({"v": array})
        try:
            pq.write_table(table, folder / "in.parquet")
            stored = pq.read_table(folder / "in.parquet")["v"]
        except (pa.ArrowException, OSError):
            return None
        if not same(said_by_all(stored), said_by_all(array)):
            return None  # Parquet, or Arrow's writer, has no such type.
        return ParquetSource(folder / "in.parquet", schema=schema)


JSON_LEAVES: list[pa.DataType] = [
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string()),
    *(pa.decimal128(5, 2), pa.decimal128(38, 0), pa.timestamp("us"), pa.timestamp("us", "UTC")),
]
JSON_VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-300, 300), st.text("aé", max_size=2)),
    st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**63) - 1, 1e300, 1e-300, 0.1, 1 / 3, 2.0]),
    st.sampled_from(["2024-03-31T12:30:00", "2024-03-31T12:30:00+02:00", "1.25"]),
)


@given(st.lists(JSON_VALUES, min_size=1, max_size=4), st.sampled_from(JSON_LEAVES), st.booleans())
def test_json_arrives_or_is_refused(
    place: Path, values: list[Any], leaf: pa.DataType, inside: bool
) -> None:
    path = place / "arrivals.jsonl"
    path.write_text("".join(json.dumps({"v": [v] if inside else v}) + "\n" for v in values))
    schema = pa.schema([("v", pa.list_(leaf) if inside else leaf)])
    source = JsonlSource(path, schema=schema)
    [split] = source.plan_splits(1)
    try:
        found = [row["v"] for row in read_all(source, split)]
    except BadRecordError as error:
        refused = str(error)
        assert f"column 'v' of type {schema.types[0]}" in refused
        return
    for value, row in zip(values, found, strict=True):
        got = row[0] if inside else row
        if pa.types.is_timestamp(leaf) and value is not None:
            moment = got.astimezone(None) if leaf.tz else got
            assert isinstance(value, int) or (leaf.tz is None) == ("+" not in value)
            assert moment is not None
        elif pa.types.is_floating(leaf) and value is not None:
            assert got == float(leaf.to_pandas_dtype()(value))
        elif pa.types.is_decimal(leaf) and isinstance(value, str):
            assert got == Decimal(value)
        else:
            assert same(said(got), said(value))


NUMBERS = st.integers(-99, 99) | st.sampled_from(
    [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**37, 10**40]
)
CODES = ["007", "0x1F", "+7", "7", "00"]
FIELDS = {
    "whole": NUMBERS.map(str),
    "unsigned": st.integers(2**63 - 2, 2**64 - 1).map(str),
    "floats": st.sampled_from(["0.5", "1e400", "1e300", "inf", "nan", "-0.0", "7.0"]),
    "codes": st.sampled_from(CODES),
    "truth": st.sampled_from(["true", "false", "1", "0"]),
    "texts": st.text('aé," 1', max_size=3),
    "days": st.sampled_from(["2024-01-01", "9999-12-31", "0001-01-01", "2024-01-01 10:00"]),
    "times": st.sampled_from(["2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00Z"]),
}
MIXED = st.sampled_from(list(FIELDS.values())).flatmap(lambda one: st.lists(one, min_size=1))
COLUMNS = MIXED | st.lists(st.one_of(*FIELDS.values()), min_size=1, max_size=5)


@given(COLUMNS, st.sampled_from([1, 1 << 20]), st.booleans())
def test_csv_arrives_or_is_refused(
    place: Path, texts: list[str], sample: int, quoted: bool
) -> None:
    """Also where the first rows look like another type than all of them.

    Codes with leading zeros must be among the first rows: behind numbers they are numbers, too.
    """
    stream = io.StringIO()
    quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, lineterminator="\n", quoting=quoting)
    writer.writerows([["id", "v"], *enumerate(texts)])
    path = place / "arrivals.csv"
    path.write_text(stream.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", 16)
        patch.setattr(csv_module, "_SAMPLE_BYTES", sample)
        source = CsvSource(path)
        found = []
        try:
            for split in source.plan_splits(1):
                found += [row["v"] for row in read_all(source, split)]
        except (BadRecordError, SourceDataError) as error:
            refused = str(error)
            assert str(path) in refused
            return
    assert len(found) == len(texts)
    for got, text in zip(found, texts, strict=True):
        if sample == 1 and type(got) in (int, float) and text in CODES:
            assert got == int(text, 0 if "x" in text else 10)
        elif not isinstance(got, str):
            assert got is None if text == "" and not quoted else _says(got, text.strip())
        else:
            assert got == text


def _says(got: Any, text: str) -> bool:
    """Whether a value is what a text says, as its type is written."""
    if isinstance(got, bool):
        return text.lower() == str(got).lower()
    if isinstance(got, int | Decimal):
        return str(got) == text.removeprefix("+")
    if isinstance(got, float):
        return np.isnan(got) if text == "nan" else same(said(got), said(Decimal(text)))
    return str(got)[:10] == text[:10]
