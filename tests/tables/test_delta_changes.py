"""The change data feed of Delta tables, beside what the library itself reads of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import minirt as rt
from minirt_connectors.delta import DeltaSource
from tests.tables.test_delta_source import reader

_ENABLED = "delta.enableChangeDataFeed"


def changed(table: Path, partitioned: bool) -> None:
    """A table with all kinds of changes: version 0 to 6, of which one only joins files."""
    rows = pa.table({"id": list(range(6)), "name": [f"row-{id}" for id in range(6)]})
    deltalake.write_deltalake(
        str(table),
        rows,
        configuration={_ENABLED: "true"},
        partition_by=["name"] if partitioned else None,
    )
    deltalake.write_deltalake(str(table), pa.table({"id": [7], "name": ["row-7"]}), mode="append")
    now = deltalake.DeltaTable(str(table))
    now.update(predicate="id = 2 or id = 3", new_values={"id": "20"})
    now.delete("id = 4")
    now.optimize.compact()
    news = pa.table({"id": [1, 9], "name": ["one", "nine"]})
    merge = now.merge(news, "s.id = t.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    now.delete()


def plain(rows: Any, at: bool = True) -> Counter[Any]:
    names = ("id", "name", "_change_type", "_commit_version")
    return Counter(
        (*(row[name] for name in names), row["_commit_timestamp"] if at else None) for row in rows
    )


def by_the_library(table: Path, since: int) -> Counter[Any]:
    found = deltalake.DeltaTable(str(table)).load_cdf(starting_version=since)
    return plain(pa.table(found).to_pylist(), at=False)


def all_rows(reading: Any) -> list[Any]:
    found = []
    while batch := reading.read():
        found += batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
    return found


@pytest.mark.parametrize("partitioned", [False, True])
def test_all_changes_come_as_the_library_reads_them(tmp_path: Path, partitioned: bool) -> None:
    table = tmp_path / "table"
    changed(table, partitioned)
    for since in range(3):
        source = DeltaSource(str(table), version=since, existing=False, changes=True, poll=0)
        found = all_rows(reader(source))
        assert plain(found, at=False) == by_the_library(table, since + 1)
        assert [row["_commit_version"] for row in found] == sorted(
            row["_commit_version"] for row in found
        )
        assert all(row["_commit_timestamp"] is not None for row in found)


def test_rows_that_are_there_come_as_inserts_and_a_replay_gives_the_table(tmp_path: Path) -> None:
    table = tmp_path / "table"
    changed(table, False)
    deltalake.write_deltalake(str(table), pa.table({"id": [8], "name": ["last"]}), mode="append")
    source = DeltaSource(str(table), version=1, changes=True, poll=0)
    held: Counter[Any] = Counter()
    for row in all_rows(reader(source)):
        added = row["_change_type"] in ("insert", "update_postimage")
        held[row["id"], row["name"]] += 1 if added else -1
    assert +held == Counter({(8, "last"): 1})
    assert min(held.values()) == 0


def test_blanks_and_signs_may_be_in_paths_names_and_values(tmp_path: Path) -> None:
    """The library itself cannot read the changes of such partitions: it encodes their paths twice."""
    table = tmp_path / "a folder" / "é +x#?"
    values = ["a b", "c/d", "e%20f", "ü=1", "x+y", "?#"]
    rows = pa.table({"id": list(range(6)), "a key": values})
    deltalake.write_deltalake(
        str(table), rows, partition_by=["a key"], configuration={_ENABLED: "true"}
    )
    deltalake.DeltaTable(str(table)).update({"id": "id * 10"}, predicate="id > 3")
    deltalake.DeltaTable(str(table)).delete("id = 2")
    found = all_rows(reader(DeltaSource(str(table), version=0, changes=True, poll=0)))
    changes = Counter((row["id"], row["a key"], row["_change_type"]) for row in found)
    updated = [(4, "x+y"), (5, "?#")]
    assert changes == Counter(
        [(id, key, "insert") for id, key in enumerate(values)]
        + [(id, key, "update_preimage") for id, key in updated]
        + [(10 * id, key, "update_postimage") for id, key in updated]
        + [(2, "e%20f", "delete")]
    )


def test_reading_on_from_any_offset_gives_the_same_tail(tmp_path: Path) -> None:
    table = tmp_path / "table"
    changed(table, True)
    source = DeltaSource(str(table), version=0, changes=True, poll=0)
    reading = reader(source)
    passed, whole = [(reading.offset, 0)], []
    while batch := reading.read():
        whole += batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
        passed.append((reading.offset, len(whole)))
    assert len(whole) > 12
    for offset, seen in passed:
        assert all_rows(reader(source, offset)) == whole[seen:]


def test_only_some_columns(tmp_path: Path) -> None:
    table = tmp_path / "table"
    changed(table, False)
    source = DeltaSource(str(table), version=1, changes=True, columns=["name"], poll=0)
    names = ["name", "_change_type", "_commit_version", "_commit_timestamp"]
    assert source.schema().names == names
    batch = reader(source).read()
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(source.schema())


def test_a_table_that_keeps_no_changes_is_refused_and_told_when_it_ceases_to(
    tmp_path: Path,
) -> None:
    table = tmp_path / "table"
    rows = pa.table({"id": [1], "name": ["a"]})
    deltalake.write_deltalake(str(table), rows)
    with pytest.raises(rt.ConfigurationError, match="keeps no change data feed"):
        DeltaSource(str(table), changes=True).validate()
    deltalake.DeltaTable(str(table)).alter.set_table_properties({_ENABLED: "true"})
    reading = reader(DeltaSource(str(table), changes=True, poll=0))
    assert len(all_rows(reading)) == 1
    deltalake.DeltaTable(str(table)).alter.set_table_properties({_ENABLED: "false"})
    with pytest.raises(rt.SourceDataError, match="from version 2 on"):
        all_rows(reading)
    for options in ({"bounded": True}, {"on_change": "skip"}):
        with pytest.raises(rt.ConfigurationError, match="leave out"):
            DeltaSource(str(table), changes=True, **options)
