"""Without a schema, a Parquet sink widens numbers and adds columns, and no value changes on the way."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.batch import Columns, Rows
from minirt.errors import SinkDataError
from minirt.io import ParquetSink, Sink, SinkContext, parquet
from minirt.testing.identities import played

NUMBERS = st.one_of(
    st.none(),
    st.integers(-5, 5),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    st.sampled_from([0.5, 1e300, float("inf")]),
)
RECORDS = st.fixed_dictionaries(
    {"id": st.integers(0, 9)},
    optional={"a": NUMBERS, "b": NUMBERS, "c": st.none() | st.text("xy", max_size=2)},
)
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=4), min_size=1, max_size=5)


def written(sink: Sink, batches: list[Any], every: int = 1) -> None:
    """What the sink makes of the batches, with a checkpoint after each `every` of them."""
    writer = sink.open_writer(SinkContext(played("job", "out"), "out", 0, 1, 1, None))
    try:
        for number, batch in enumerate(batches, 1):
            writer.write(batch)
            if number % every == 0 or number == len(batches):
                if number == len(batches):
                    writer.release()
                prepared = writer.prepare(number)
                if prepared.finish is not None:
                    prepared.finish()
                sink.commit(prepared.handles)
    finally:
        writer.close()


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """The records in all files, without what is null."""
    for path in sorted(folder.rglob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            yield {name: value for name, value in row.items() if value is not None}


def fits(batches: list[list[dict[str, Any]]]) -> bool:
    """Whether whole numbers that are no floats and numbers that are no whole ones meet in no column."""
    kinds: dict[str, str] = {}
    for batch in batches:
        for name in ("a", "b"):
            values = [one[name] for one in batch if one.get(name) is not None]
            has_floats = any(isinstance(one, float) for one in values)
            if has_floats:
                kinds[name] = "float"
            if kinds.get(name) == "float" and any(
                isinstance(one, int) and int(float(one)) != one for one in values
            ):
                return False
    return True


@given(BATCHES, st.booleans(), st.integers(1, 3), st.sampled_from([1, 1 << 20]), st.booleans())
def test_records_come_back_as_they_were_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[dict[str, Any]]],
    as_columns: bool,
    every: int,
    group_bytes: int,
    rolls: bool,
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    made = [
        Columns(pa.RecordBatch.from_pylist(_filled(batch))) if as_columns else Rows(batch)
        for batch in (batches if fits(batches) or not as_columns else [])
    ]
    sink = ParquetSink(folder, roll_interval="1h") if rolls else ParquetSink(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_ROW_GROUP_BYTES", group_bytes)
        refused = ""
        try:
            written(sink, made, every)
        except SinkDataError as error:
            refused = str(error)
    if refused:
        assert "column '" in refused
        assert not fits(batches) or "only None" in refused
        return
    expected = [
        {name: value for name, value in one.items() if value is not None}
        for batch in batches
        for one in batch
    ]
    if made:
        assert sorted(map(_sortable, stored(folder))) == sorted(map(_sortable, expected))


def _filled(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for one in batch for name in one)
    return [{name: one.get(name) for name in names} for one in batch]


def _sortable(record: dict[str, Any]) -> str:
    """2 and 2.0 are alike."""
    return repr(
        sorted(
            (name, Decimal(value) if isinstance(value, int | float) else value)
            for name, value in record.items()
        )
    )


def test_numbers_widen_in_one_file(tmp_path: Path) -> None:
    batches = [[{"a": None}], [{"a": 1, "b": "x"}], [{"a": 1.5}], [{"c": [1]}]]
    written(ParquetSink(tmp_path), list(map(Rows, batches)), every=9)
    [path] = tmp_path.rglob("*.parquet")
    table = pq.read_table(path)
    assert table.schema.types == [pa.float64(), pa.string(), pa.list_(pa.int64())]
    assert table["a"].to_pylist() == [None, 1.0, 1.5, None]


def test_a_number_that_no_other_type_holds_is_named_with_its_record(tmp_path: Path) -> None:
    rows = [{"a": 0.5}, {"a": 7.0}]
    sink = ParquetSink(tmp_path)
    with pytest.raises(
        SinkDataError,
        match=rf"column 'a': {2**53 + 1} of type int64 cannot become double .*in record .*'a': {2**53 + 1}",
    ):
        written(sink, [Rows(rows), Rows([{"a": 3}, {"a": 2**53 + 1}])])
    with pytest.raises(
        SinkDataError,
        match=r"column 'a': double in some records, string in others.*in record \{'a': 'x'\}",
    ):
        written(sink, [Rows(rows), Rows([{"a": "x"}])])
