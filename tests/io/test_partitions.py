"""Output in folders by the values of columns."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import ConfigurationError, SinkDataError
from minirt.io import FileSink, JsonlSink, ParquetSink, SinkContext, file_writer
from minirt.testing.contracts import JOB

ROWS: list[dict[str, Any]] = [
    {"day": dt.date(2024, 5, 1 + n % 3), "kind": "a/b" if n % 2 else None, "n": n}
    for n in range(12)
]


def write(sink: FileSink, *batches: Batch) -> None:
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, 1))
    try:
        for batch in batches:
            writer.write(batch)
        prepared = writer.prepare(1)
        assert prepared.finish is not None
        prepared.finish()
        sink.commit(prepared.handles)
    finally:
        writer.close()


def content(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for file in folder.rglob("part-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert all(row.keys() == {"n"} for row in rows)
        place = file.parent.relative_to(folder).as_posix()
        found.setdefault(place, []).extend(row["n"] for row in rows)
    return {place: sorted(numbers) for place, numbers in found.items()}


@pytest.mark.parametrize("form", ["rows", "columns", "both"])
def test_each_partition_has_a_folder_as_hive_names_it(form: str, tmp_path: Path) -> None:
    columns = Columns(pa.RecordBatch.from_pylist(ROWS))
    rows = [Rows(ROWS[:5]), Rows([]), Rows(ROWS[5:])]
    both = [Rows(ROWS[:5]), columns.slice(5, 12)]
    batches: list[Batch] = {"rows": rows, "columns": [columns], "both": both}[form]  # type: ignore[assignment]
    write(JsonlSink(tmp_path, partition_by=["day", "kind"]), *batches)
    assert content(tmp_path) == {
        f"day=2024-05-0{1 + n % 3}/kind={'a%2Fb' if n % 2 else '__HIVE_DEFAULT_PARTITION__'}": [
            n,
            n + 6,
        ]
        for n in range(6)
    }


@pytest.mark.parametrize("kinds", [["a", None, "b", None], ["a", None], ["a", "a"], [None, None]])
def test_a_column_with_a_dictionary_is_dealt_by_its_values(
    kinds: list[Any], tmp_path: Path
) -> None:
    table = pa.RecordBatch.from_pydict(
        {"kind": pa.array(kinds).dictionary_encode(), "n": pa.array(range(len(kinds)))}
    )
    write(JsonlSink(tmp_path, partition_by="kind"), Columns(table))
    expected: dict[str, list[int]] = {}
    for n, kind in enumerate(kinds):
        expected.setdefault(f"kind={kind or '__HIVE_DEFAULT_PARTITION__'}", []).append(n)
    assert content(tmp_path) == expected


def test_readers_find_the_columns_in_the_names_of_folders(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("kind", pa.string())])
    write(ParquetSink(tmp_path, partition_by=["day", "kind"], schema=schema), Rows(ROWS))
    found = pa.schema([("day", pa.date32()), ("kind", pa.string())])
    hive = ds.HivePartitioning(found, segment_encoding="uri")
    table = ds.dataset(tmp_path, format="parquet", partitioning=hive).to_table()
    assert sorted(table.to_pylist(), key=lambda row: row["n"]) == ROWS
    (one, *_) = tmp_path.rglob("part-*.parquet")
    assert pa.parquet.read_schema(one).names == ["n"]


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("", "k=__HIVE_DEFAULT_PARTITION__"),
        ("..", "k=.."),
        ("a=b%c", "k=a%3Db%25c"),
        ("é", "k=é"),
        ("\n", "k=%0A"),
        (7, "k=7"),
        (True, "k=true"),
        (1, "k=1"),
        (Decimal("1"), "k=1"),
        (dt.datetime(2024, 5, 6, 7), "k=2024-05-06 07%3A00%3A00"),
    ],
)
def test_values_are_written_so_that_folders_stay_below_the_target(
    value: Any, folder: str, tmp_path: Path
) -> None:
    write(JsonlSink(tmp_path / "out", partition_by="k"), Rows([{"k": value, "n": 1}]))
    assert content(tmp_path / "out") == {folder: [1]}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_values_that_are_equal_in_python_alone_have_folders_of_their_own(tmp_path: Path) -> None:
    values = [True, 1, "1", Decimal("1.0")]
    records = [{"k": value, "n": n} for n, value in enumerate(values)]
    write(JsonlSink(tmp_path, partition_by="k"), Rows(records))
    assert content(tmp_path) == {"k=true": [0], "k=1": [1, 2], "k=1.0": [3]}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"n": 1}, "'k': missing"),
        ({"k": 1.5}, r"'k': 1\.5 cannot be the name"),
        ({"k": [1]}, r"'k': \[1\] cannot be the name"),
        ({"k": "\ud800"}, "'k': .* cannot be the name"),
        ({"k": "x" * 300}, "'k': .* is too long"),
        ("text", r"'\*': records must be dicts"),
    ],
)
def test_a_record_without_a_folder_is_named(record: Any, reason: str, tmp_path: Path) -> None:
    good = {"k": "a", "n": 1}
    with pytest.raises(SinkDataError, match=f"out: partition_by column {reason}"):
        write(JsonlSink(tmp_path, partition_by="k"), Rows([good, record]))


def test_columns_that_lack_the_column_or_have_no_other_are_refused(tmp_path: Path) -> None:
    for sink in (JsonlSink(tmp_path, partition_by="k"), ParquetSink(tmp_path, partition_by="k")):
        for table, reason in (({"n": [1]}, "missing"), ({"k": [1]}, "nothing is left")):
            with pytest.raises(SinkDataError, match=reason):
                write(sink, Columns(pa.RecordBatch.from_pydict(table)))


def test_many_partitions_share_a_bounded_number_of_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "OPEN_FILES_MAX", 3)
    records = [{"k": n % 8, "n": n} for n in range(64)]
    batches = [Rows(records[start : start + 8]) for start in range(0, 64, 8)]
    write(JsonlSink(tmp_path, partition_by="k"), *batches)
    assert content(tmp_path) == {f"k={k}": [*range(k, 64, 8)] for k in range(8)}


@pytest.mark.parametrize("columns", [(), [], "", [""], ["a", "a"], [1], 5])
def test_columns_that_cannot_be_are_refused(columns: Any) -> None:
    with pytest.raises(ConfigurationError, match="partition_by"):
        JsonlSink("/tmp/x", partition_by=columns)
