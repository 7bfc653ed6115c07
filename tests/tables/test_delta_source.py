"""The source of Delta tables, over tables that the library itself has written."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt.testing.contracts import SourceContract
from minirt_connectors.delta import DeltaSource
from tests.tables.reading import ids, reader


def append(table: Path, *ids: int, **options: Any) -> None:
    rows = pa.table({"id": list(ids), "name": [f"row {id}" for id in ids]})
    deltalake.write_deltalake(str(table), rows, mode="append", **options)


class TestContract(SourceContract):
    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        for first in range(4):
            append(tmp_path / "table", *range(first * 40_000, (first + 1) * 40_000))
        return tmp_path / "table"

    @pytest.fixture
    def source(self, table: Path) -> rt.Source:
        return DeltaSource(str(table), bounded=True, splits=2)

    @pytest.fixture
    def expected(self, table: Path) -> list[Any]:
        files = sorted(table.glob("part-*"))
        return [
            row for file in files[0::2] + files[1::2] for row in pq.read_table(file).to_pylist()
        ]


def test_later_versions_are_read_as_they_come_and_from_any_offset(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 1, 2)
    source = DeltaSource(str(table), poll=0)
    reading = reader(source)
    offsets = [reading.offset]
    assert ids(reading) == [1, 2]
    append(table, 3)
    append(table, 4)
    for id in (3, 4):
        batch = reading.read()
        assert isinstance(batch, pa.RecordBatch)
        assert batch.column("id").to_pylist() == [id]
        offsets.append(reading.offset)
    assert ids(reading) == []
    assert ids(reader(source, offsets[0])) == [1, 2, 3, 4]
    assert ids(reader(source, offsets[1])) == [4]
    assert ids(reader(source, offsets[2])) == []


def test_a_job_can_begin_at_a_version_or_behind_it(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for id in (1, 2, 3):
        append(table, id)
    # The time of a version is that of its file in the log.
    for number in range(3):
        os.utime(table / f"_delta_log/{number:020}.json", (1e9 + number, 1e9 + number))
    between = dt.datetime.fromtimestamp(1e9 + 1.5, dt.UTC)
    assert ids(reader(DeltaSource(str(table), version=0, bounded=True))) == [1]
    assert sorted(ids(reader(DeltaSource(str(table), version=between, bounded=True)))) == [1, 2]
    assert ids(reader(DeltaSource(str(table), version=0, existing=False, poll=0))) == [2, 3]


def test_rows_that_were_only_moved_are_not_read_again(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 1)
    append(table, 2)
    reading = reader(DeltaSource(str(table), poll=0))
    assert sorted(ids(reading)) == [1, 2]
    deltalake.DeltaTable(str(table)).optimize.compact()
    append(table, 3)
    assert ids(reading) == [3]


def test_a_version_that_takes_rows_away_fails_or_is_passed_over(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 1, 2)
    failing = reader(DeltaSource(str(table), poll=0))
    passing = reader(DeltaSource(str(table), poll=0, on_change="skip"))
    assert ids(failing) == ids(passing) == [1, 2]
    deltalake.DeltaTable(str(table)).delete("id = 1")
    append(table, 3)
    with pytest.raises(rt.SourceDataError, match="version 1 changes or deletes"):
        ids(failing)
    assert ids(passing) == [3]


def test_partitions_and_columns_that_came_later(tmp_path: Path) -> None:
    table = tmp_path / "table"
    first = pa.table({"id": [1, 2], "day": [dt.date(2024, 5, 6), None], "k": ["a b/c=%", "x"]})
    deltalake.write_deltalake(str(table), first, partition_by=["day", "k"])
    more = pa.table({"id": [3], "day": [dt.date(2024, 5, 7)], "k": ["y"], "more": [0.5]})
    deltalake.write_deltalake(str(table), more, mode="append", schema_mode="merge")
    source = DeltaSource(str(table), version=1, bounded=True, columns=["more", "k", "day", "id"])
    reading = reader(source)
    found: list[dict[str, Any]] = []
    while batch := reading.read():
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema == source.schema()
        found += batch.to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"more": None, "k": "a b/c=%", "day": dt.date(2024, 5, 6), "id": 1},
        {"more": None, "k": "x", "day": None, "id": 2},
        {"more": 0.5, "k": "y", "day": dt.date(2024, 5, 7), "id": 3},
    ]


def test_a_version_that_was_cleaned_away_is_an_error_and_never_passed_over(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 1)
    reading = reader(DeltaSource(str(table), poll=0))
    assert ids(reading) == [1]
    append(table, 2)
    append(table, 3)
    deltalake.DeltaTable(str(table)).create_checkpoint()
    for version in (0, 1):
        (table / f"_delta_log/{version:020d}.json").unlink()
    with pytest.raises(rt.SourceDataError, match="version 1 is not in the log any more"):
        reading.read()


def test_a_file_that_vacuum_has_removed_is_an_error(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 1)
    source = DeltaSource(str(table), bounded=True)
    source.validate()
    for file in table.glob("part-*"):
        file.unlink()
    with pytest.raises(rt.SourceDataError, match="VACUUM"):
        ids(reader(source))


def test_a_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 1)
    log = table / "_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            features = ["deletionVectors"]
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7,
                                "readerFeatures": features, "writerFeatures": features}  # fmt: skip
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(rt.ConfigurationError, match="deletionVectors"):
        DeltaSource(str(table)).validate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 7}, "version 7"),
        ({"version": -1}, "negative"),
        ({"version": dt.datetime(2024, 1, 1)}, "time zone"),
        ({"bounded": True, "existing": False}, "read nothing"),
        ({"columns": ["nmae"]}, "did you mean 'name'"),
        ({"on_change": "ignore"}, "fail or skip"),
        ({"splits": 0}, "splits"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    append(tmp_path / "table", 1)
    with pytest.raises(rt.ConfigurationError, match=message):
        DeltaSource(str(tmp_path / "table"), **options).validate()


def test_a_table_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rt.ConfigurationError, match="no Delta table"):
        DeltaSource(str(tmp_path / "nowhere")).validate()
