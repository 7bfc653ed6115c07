"""What a checkpoint remembers of a path is compared with the path that a restored source reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt.testing.contracts import BEFORE, SourceMemoryContract

SCHEMA = pa.schema([("id", pa.int64())])


def jsonl(path: Path, id: int) -> None:
    (path / f"{id:03}.jsonl").write_text(json.dumps({"id": id}) + "\n")


def csv(path: Path, id: int) -> None:
    (path / f"{id:03}.csv").write_text(f"id\n{id}\n")


def parquet(path: Path, id: int) -> None:
    pq.write_table(pa.table({"id": [id]}, SCHEMA), path / f"{id:03}.parquet")


class AnotherFolder(SourceMemoryContract):
    """One file a record. The other folder holds files of the same names, as after a move."""

    while_running = False
    names = ("/old", "/new")
    watched = False

    def kind(self) -> tuple[Callable[..., rt.Source], Callable[[Path, int], None], dict[str, Any]]:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path) -> None:
        self.old, self.new = tmp_path / "old", tmp_path / "new"
        self.old.mkdir()
        self.new.mkdir()

    def source(self, path: Path, accept: Sequence[str]) -> rt.Source:
        make, _, options = self.kind()
        watch = {**options, "watch": 0} if self.watched else {}
        return make(str(path), accept=accept, **watch)

    def first(self) -> rt.Source:
        for id in range(BEFORE):
            self.kind()[1](self.old, id)
        return self.source(self.old, ())

    def change(self, count: int) -> None:
        for id in range(count):
            self.kind()[1](self.new, id)

    def second(self, accept: Sequence[str]) -> rt.Source:
        return self.source(self.new, accept)

    def records_of(self, count: int) -> int | None:
        return max(0, count - BEFORE) if self.watched else 0

    @pytest.mark.parametrize("count", [BEFORE, BEFORE + 3])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        super().test_it_can_be_accepted_and_is_remembered_then(count)


class TestJsonl(AnotherFolder):
    def kind(self) -> Any:
        return rt.JsonlSource, jsonl, {}


class TestCsv(AnotherFolder):
    def kind(self) -> Any:
        return rt.CsvSource, csv, {"types": {"id": "int64"}}


class TestParquet(AnotherFolder):
    def kind(self) -> Any:
        return rt.ParquetSource, parquet, {"schema": SCHEMA}


class TestWatchedJsonl(TestJsonl):
    watched = True


class TestWatchedCsv(TestCsv):
    watched = True


class TestWatchedParquet(TestParquet):
    watched = True
