"""Values arrive as they were sent, or are refused: what each sink and each source of columns inherits.

What a sink has written is read by programs of others, and what a source reads was written by them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.from_python import REFUSALS, column_of
from minirt.errors import SinkDataError, SourceDataError
from minirt.io import Sink, SinkContext, Source, Staging
from minirt.io.base import Committable, CommitterContext
from minirt.storage.store import ObjectStore
from minirt.testing.identities import played
from tests.data.arrow_values import arrays
from tests.data.saying import said, said_by_all, same
from tests.data.test_fitting import VALUES, targets

JOB = played("job", "out")
INHERITED = [HealthCheck.differing_executors, HealthCheck.too_slow, HealthCheck.filter_too_much]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


class SinkArrivals(ABC):
    """Tests over a sink with one column `v`, of any of `TYPES`."""

    TYPES: Sequence[pa.DataType]

    @abstractmethod
    def new_sink(self, folder: Path, schema: pa.Schema) -> Sink:
        """A sink of these columns into an empty folder."""

    @abstractmethod
    def found(self, folder: Path) -> list[Any]:
        """What the values of `v` say to others, in the order of `id`."""

    def expected(self, value: Any) -> Any:
        """What a value that was sent should say to others, by what it says itself."""
        return value

    @settings(suppress_health_check=INHERITED)
    @given(st.data())
    def test_values_arrive_or_are_refused(self, place: Path, data: Any) -> None:
        type = data.draw(st.sampled_from(list(self.TYPES)))
        batches = data.draw(st.lists(VALUES, min_size=1, max_size=3))
        folder = place / f"arrivals{next(_numbers)}"
        folder.mkdir()
        schema = pa.schema([("id", pa.int64()), ("v", type)])
        sent, at = [], 0
        written: list[Batch] = []
        for values in filter(None, batches):
            rows = [{"id": at + n, "v": value} for n, value in enumerate(values)]
            at += len(values)
            sent += [self.expected(said(value)) for value in values]
            written.append(self._batch(rows, data.draw(st.booleans())))
        if not written:
            return
        try:
            _write(self.new_sink(folder, schema), written, ObjectStore(str(folder / "staged")))
        except SinkDataError as error:
            refused = str(error)
            assert "column 'v'" in refused
            assert "in record {'id': " in refused
            return
        assert same(self.found(folder), sent)

    def _batch(self, rows: list[Any], as_columns: bool) -> Batch:
        if as_columns:
            try:
                column = column_of([row["v"] for row in rows], "v")
                ids = pa.array([row["id"] for row in rows])
                return Columns(pa.RecordBatch.from_arrays([ids, column], ["id", "v"]))
            except REFUSALS:
                pass
        return Rows(rows)


def _write(sink: Sink, batches: Sequence[Batch], staging: Staging) -> None:
    sink.validate()
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, 1, staging))
    try:
        for batch in batches:
            writer.write(batch)
        prepared = writer.prepare(1)
        if prepared.finish is not None:
            prepared.finish()
    finally:
        writer.close()
    committer = sink.open_committer(CommitterContext(JOB, "out", 1, staging))
    try:
        committer.commit([Committable(1, handle) for handle in prepared.handles])
    finally:
        committer.close()


class ColumnsSourceArrivals(ABC):
    """Tests over a source that reads one column `v` of files of another as columns of a schema."""

    @abstractmethod
    def new_source(self, folder: Path, array: pa.Array, schema: pa.Schema) -> Source[Any] | None:
        """A source that reads what another program has stored; None if that cannot store it."""

    @settings(suppress_health_check=INHERITED)
    @given(st.data())
    def test_values_arrive_or_are_refused(self, place: Path, data: Any) -> None:
        array = data.draw(arrays())
        type = data.draw(targets(array.type))
        folder = place / f"arrivals{next(_numbers)}"
        folder.mkdir()
        source = self.new_source(folder, array, pa.schema([("v", type)]))
        if source is None:
            return
        refused = ""
        found: list[Any] = []
        try:
            for split in source.plan_splits(1):
                reader = source.open_split(split, None)
                try:
                    while (batch := reader.read()) is not None:
                        found += said_by_all(batch.column("v"))
                finally:
                    reader.close()
        except SourceDataError as error:
            refused = str(error)
        if refused:
            assert "column 'v'" in refused
            assert str(folder) in refused
        else:
            assert same(found, said_by_all(array))


PLAIN_TYPES: list[pa.DataType] = [
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.decimal128(5, 2), pa.decimal128(38, 18)),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
]
MORE_TYPES: list[pa.DataType] = [
    *(pa.uint64(), pa.uint8(), pa.large_string(), pa.binary(2), pa.timestamp("ms")),
    *(pa.timestamp("ns"), pa.time64("us"), pa.time32("ms"), pa.duration("us"), pa.date64()),
    *(pa.decimal256(60, 3), pa.list_(pa.int64()), pa.struct([("p", pa.float32())])),
    pa.dictionary(pa.int32(), pa.string()),
]
