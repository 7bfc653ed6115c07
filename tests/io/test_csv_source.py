"""CSV as a source."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io import CsvSource, Source, lines
from minirt.testing.contracts import SourceContract, read_all

ROWS = [{"id": i, "name": f"n,{i}" if i % 3 else None, "x": i / 4} for i in range(300)]


def csv_text(rows: list[dict[str, Any]], names: list[str], newline: str = "\n") -> str:
    def field(value: Any) -> str:
        return "" if value is None else f'"{value}"' if isinstance(value, str) else str(value)

    body = [",".join(field(row[name]) for name in names) for row in rows]
    return newline.join([",".join(names), *body])


class TestCsvSource(SourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
        monkeypatch.setattr(lines, "BLOCK_BYTES", 256)
        (tmp_path / "a.csv").write_text(csv_text(ROWS[:100], ["id", "name", "x"]))
        other_order = csv_text(ROWS[100:200], ["x", "id", "name"], "\r\n") + "\r\n\r\n"
        (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf" + other_order.encode())
        zipped = csv_text(ROWS[200:], ["id", "name", "x"]).encode()
        (tmp_path / "c.csv.gz").write_bytes(gzip.compress(zipped))
        return CsvSource(tmp_path, split_bytes=700)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


class TestMultilineCsvSource(SourceContract):
    rows = [{"id": i, "text": f'line\n"{i}"\r\n'} for i in range(50)]

    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
        monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
        for name, rows in (("a", self.rows[:25]), ("b", self.rows[25:])):
            body = "".join('{};"line\n""{}""\r\n"\n'.format(row["id"], row["id"]) for row in rows)
            (tmp_path / f"{name}.txt").write_bytes(body.encode())
        paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
        return CsvSource(paths, header=False, columns=["id", "text"], delimiter=";", multiline=True)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return self.rows


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "in.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows_of(source: CsvSource) -> list[Any]:
    return [row for split in source.plan_splits(1) for row in read_all(source, split)]


def test_types_are_inferred_from_the_beginning_and_hold_for_all_files(tmp_path: Path) -> None:
    write(tmp_path, "i,f,s,t,d,b,n\n1,1.5,x,2020-01-02 03:04:05,2020-01-02,true,\n")
    source = CsvSource(tmp_path)
    assert {field.name: str(field.type) for field in source.schema()} == {
        "i": "int64",
        "f": "double",
        "s": "string",
        "t": "timestamp[us]",
        "d": "date32[day]",
        "b": "bool",
        "n": "string",
    }
    (row,) = rows_of(source)
    assert (row["t"], row["n"]) == (dt.datetime(2020, 1, 2, 3, 4, 5), None)
    (tmp_path / "later.csv").write_text("i,f,s,t,d,b,n\noops,1,x,,,,\n")
    with pytest.raises(SourceDataError, match=r"later\.csv.*column 'i'.*oops"):
        rows_of(source)


def test_given_types_and_nulls_win_over_inference(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b,c\n1,NA,""\n2,3,\n')
    source = CsvSource(path, types={"a": "str", "b": pa.int16()}, null_values=["NA", ""])
    assert source.schema().types == [pa.string(), pa.int16(), pa.string()]
    assert rows_of(source) == [{"a": "1", "b": None, "c": ""}, {"a": "2", "b": 3, "c": None}]


def test_columns_selects_and_orders_where_there_is_a_header(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1,2,3\n")
    assert rows_of(CsvSource(path, columns=["c", "a"])) == [{"c": 3, "a": 1}]


def test_columns_names_what_a_file_without_header_holds(tmp_path: Path) -> None:
    path = write(tmp_path, "1,2\n")
    assert rows_of(CsvSource(path, header=False)) == [{"f0": 1, "f1": 2}]
    assert rows_of(CsvSource(path, header=False, columns=["x", "y"])) == [{"x": 1, "y": 2}]
    with pytest.raises(ConfigurationError, match=r"names 1 columns, but .* holds 2"):
        CsvSource(path, header=False, columns=["x"]).validate()


DAMAGED = 'id,name\n1,a\n2\n3,c,c\n\nx,d\n5,"e\n6,f"\n7,g\n8,"h"\n'
BAD_TEXTS = ["2", "3,c,c", "x,d", '5,"e', '6,f"']


@pytest.mark.parametrize("block_bytes", [1, 16, 1 << 18])
def test_bad_rows_are_the_same_however_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block_bytes)
    path = write(tmp_path, DAMAGED)
    source = CsvSource(path, types={"id": "int"}, on_error="side_output")
    reader = source.open_split(source.plan_splits(1)[0], None)
    good, bad = [], []
    while (batch := reader.read()) is not None:
        good += batch.column("id").to_pylist()
        bad += reader.take_bad_records()
    reader.close()
    assert [record.text for record in bad][:4] == BAD_TEXTS[:4]
    assert good[:1] == [1]
    assert good[-2:] == [7, 8]
    assert reader.skipped == len(bad)
    assert bad[2].location == f"{path}, byte {DAMAGED.index('x,d')}"
    assert "column 'id'" in bad[2].error
    assert "never closed" in bad[3].error


def test_a_bad_row_fails_the_job_and_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "id,name\n1,a\n2\n")
    with pytest.raises(
        SourceDataError, match=r"in\.csv, byte 12: .*Expected 2 columns, got 1.*'2'"
    ):
        rows_of(CsvSource(path))


def test_only_a_header_gives_no_rows(tmp_path: Path) -> None:
    source = CsvSource(write(tmp_path, "a,b\n"))
    assert source.schema().names == ["a", "b"]
    assert rows_of(source) == []


def test_python_types_name_columns_types(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c,d,e\n1,2,2024-05-06,2024-05-06 07:08:09,true\n")
    kinds = {"a": float, "b": str, "c": dt.date, "d": dt.datetime, "e": bool}
    (record,) = rows_of(CsvSource(path, types=kinds))
    assert record == {
        "a": 1.0,
        "b": "2",
        "c": dt.date(2024, 5, 6),
        "d": dt.datetime(2024, 5, 6, 7, 8, 9),
        "e": True,
    }
    assert {name: type(value) for name, value in record.items()} == kinds


def test_a_file_without_a_column_of_the_first_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a,c\n1,2\n")
    with pytest.raises(SourceDataError, match=r"b\.csv has no column b"):
        rows_of(CsvSource(tmp_path))


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "origin,delay\nx,1\n")
    with pytest.raises(ConfigurationError, match="did you mean 'origin'"):
        CsvSource(path, columns=["orign"]).validate()
    with pytest.raises(ConfigurationError, match="types: there is no column 'delai'"):
        CsvSource(path, types={"delai": "int"}).validate()
    with pytest.raises(ConfigurationError, match="neither an Arrow type, nor the name of one"):
        CsvSource(path, types={"delay": "integer"})
    for kind in (complex, list[int], 5, None, [pa.int64()]):
        with pytest.raises(ConfigurationError, match="given for column 'delay'"):
            CsvSource(path, types={"delay": kind})  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match="types must be a dict"):
        CsvSource(path, types=["delay"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="delimiter"):
        CsvSource(path, delimiter="||")
    with pytest.raises(SourceDataError, match="names a column twice"):
        CsvSource(write(tmp_path, "a,a\n1,2\n")).validate()
