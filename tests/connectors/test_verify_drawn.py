"""The verdict of verify is that of an independent comparison in Python, whatever is planted."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minirt.data.batch import Rows
from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.json_text import JsonlEncoder
from minirt.io.partitions import Partitioner
from minirt_connectors.spark import verify
from minirt_connectors.spark.verify import json_frame, main
from minirt_connectors.spark.verify.alignment import align
from minirt_connectors.spark.verify.committed import Found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# An example takes Spark a second: few are drawn, and none is made smaller.
QUICK = settings(max_examples=12, phases=[Phase.explicit, Phase.generate])

ROW = dict[str, Any]
PARTS = ["007", "7", "1e3", "1000", "2024-01-01", "true", "True", "NaN", "a b", "ä/=%", " x ", None]
COLUMNS = {
    "part string": pa.string(),
    "id long": pa.int64(),
    "text string": pa.string(),
    "x double": pa.float64(),
    "price decimal(12,2)": pa.decimal128(12, 2),
    "day date": pa.date32(),
    "at timestamp": pa.timestamp("us", "UTC"),
}
SCHEMA = pa.schema([(name.split()[0], kind) for name, kind in COLUMNS.items()])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "part": st.sampled_from(PARTS),
            "id": st.none() | st.sampled_from([0, 1, 2**53, 2**53 + 1]),
            "text": st.none() | st.sampled_from(["a", "A", "a ", "", "1", "ä"]),
            "x": st.none() | st.sampled_from([0.0, 0.1, 0.1 + 0.2, 0.3, 1e300, 1e-300]),
            "price": st.none() | st.sampled_from([Decimal("1.00"), Decimal("1.01")]),
            "day": st.none() | st.sampled_from([dt.date(1500, 3, 1), dt.date(2024, 2, 29)]),
            "at": st.none()
            | st.sampled_from(
                [
                    dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC),
                    dt.datetime(1500, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
                ]
            ),
        }
    ),
    min_size=1,
    max_size=8,
)


def lose(row: ROW) -> list[ROW]:
    return []


def double(row: ROW) -> list[ROW]:
    return [row, row]


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[ROW], list[ROW]]:
    return lambda row: [{**row, name: change(row[name])}]


def other_part(part: str | None) -> str:
    return {"007": "7", "7": "007", "1e3": "1000", "1000": "1e3", "true": "True"}.get(
        part or "", "7"
    )


FAULTS: dict[str, Callable[[ROW], list[ROW]]] = {
    "nothing": lambda row: [row],
    "lost": lose,
    "doubled": double,
    "one more": changed("id", lambda n: (n or 0) + 1),
    "an ulp": changed("x", lambda x: math.nextafter(x or 0.5, 0)),
    "a microsecond": changed(
        "at", lambda at: (at or dt.datetime(2024, 1, 1)) + dt.timedelta(microseconds=1)
    ),
    "a cent": changed("price", lambda price: (price or 0) + Decimal("0.01")),
    "null": changed("text", lambda _: None),
    "case": changed("text", lambda text: (text or "x").swapcase()),
    "a blank": changed("text", lambda text: (text or "") + " "),
    "ten days": changed("day", lambda day: (day or dt.date(2024, 1, 1)) + dt.timedelta(days=10)),
    "another folder": changed("part", other_part),
}


def aware(row: ROW) -> ROW:
    at = row["at"]
    return {**row, "at": at and at.replace(tzinfo=dt.UTC)}


def counted(rows: list[ROW]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def right_counts(output: list[ROW], expected: list[ROW]) -> tuple[int, int, int]:
    have, want = counted(output), counted(expected)
    surplus = have - want
    doubled = sum(count for row, count in surplus.items() if row in want)
    return (want - have).total(), doubled, surplus.total() - doubled


def by_folder(rows: list[ROW]) -> list[tuple[str, list[ROW]]]:
    split = Partitioner("out", ["part"]).split(Rows(rows))
    return [(folder, batch.rows().records) for folder, batch in split]


def write_jsonl(folder: Path, rows: list[ROW]) -> None:
    with (folder / "part-0.jsonl").open("wb") as stream:
        JsonlEncoder(stream, "out", "error").write(Rows(rows))


def write_parquet(folder: Path, rows: list[ROW]) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name in rows[0]])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "part-0.parquet")


def in_folders(write: Callable[[Path, list[ROW]], None]) -> Callable[[Path, list[ROW]], None]:
    def write_all(folder: Path, rows: list[ROW]) -> None:
        for part, inner in by_folder(rows):
            (folder / part).mkdir()
            write(folder / part, inner)

    return write_all


FORMATS = {
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "jsonl in folders": in_folders(write_jsonl),
    "parquet in folders": in_folders(write_parquet),
}


def frame_of(spark: SparkSession, rows: list[ROW]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA), ", ".join(COLUMNS))


@pytest.mark.parametrize("form", sorted(FORMATS))
@QUICK
@given(data=st.data())
def test_the_verdict_is_that_of_python(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    expected = data.draw(ROWS)
    fault = FAULTS[data.draw(st.sampled_from(sorted(FAULTS)))]
    place = data.draw(st.integers(0, len(expected) - 1))
    planted = [aware(row) for row in fault(expected[place])]
    output = [*expected[:place], *planted, *expected[place + 1 :]]
    folder = tmp_path_factory.mktemp("out") / data.draw(st.sampled_from(["o", "ö %20 [a]{b}*:x"]))
    folder.mkdir()
    if output:
        FORMATS[form](folder, output)
    verdict = verify(spark, str(folder), frame_of(spark, expected))
    found = verdict.lost, verdict.duplicated, verdict.unexpected
    assert found == right_counts(output, expected)
    assert (verdict.rows_expected, verdict.rows_output) == (len(expected), len(output))
    with_keys = verify(spark, str(folder), frame_of(spark, expected), keys=["part", "id"])
    assert with_keys.ok == verdict.ok


BENDS = {
    "text": lambda row: {**row, "text": 1},
    "id": lambda row: {**row, "id": str(row["id"] or 0)},
    "x": lambda row: {**row, "x": {"a": row["x"]}},
    "price": lambda row: {**row, "price": "1.0001"},
    "day": lambda row: {**row, "day": "2024-02-29T00:00:00"},
    "at": lambda row: {**row, "at": "2024-01-01T01:00:00.000000001Z"},
}


@pytest.mark.parametrize("name", sorted(BENDS))
def test_a_bent_line_is_never_ok(spark: SparkSession, tmp_path: Path, name: str) -> None:
    whole = {
        "part": "7", "id": 1, "text": "1", "x": 0.0, "price": Decimal("1.00"),
        "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC),
    }  # fmt: skip
    write_jsonl(tmp_path, [whole, BENDS[name](whole)])
    expected = frame_of(spark, [whole, whole])
    with pytest.raises(SourceDataError, match=rf"part-0\.jsonl, line 2, column {name}"):
        verify(spark, str(tmp_path), expected)


def test_numbers_of_more_digits_than_expected_are_findings(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text('{"p": 1.0001, "n": 1}\n{"p": 1, "n": 1.5}\n')
    expected = spark.sql("SELECT * FROM VALUES (1.00BD, 1L), (1.00BD, 1L) AS t(p, n)")
    verdict = verify(spark, str(tmp_path), expected)
    assert (verdict.lost, verdict.duplicated, verdict.unexpected) == (2, 0, 2)


def test_lines_are_read_alike_by_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"k": "a", "n": 2**53 + 1, "x": 0.1, "l": [1, None], "s": {"a": 1}}
    lines = [{**row, "n": row["n"] + number} for number in range(40)]
    (tmp_path / "k=7").mkdir()
    path = tmp_path / "k=7" / "part-0.jsonl"
    path.write_text("".join(json.dumps({**line, "k": None}) + "\n" for line in lines))
    with pytest.raises(SourceDataError, match="the line has k, and so has the folder"):
        verify(spark, str(tmp_path), spark.range(1))
    renamed = [{"q": line.pop("k"), **line} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in renamed))
    columns = "q string, n long, x double, l array<long>, s struct<a: long>, k string"
    expected = spark.createDataFrame(
        [("a", line["n"], 0.1, [1, None], (1,), "7") for line in lines], columns
    )
    assert verify(spark, str(tmp_path), expected).ok
    monkeypatch.setattr(json_frame, "_HERE_BYTES_MAX", -1)
    monkeypatch.setattr(json_frame, "_PIECE_BYTES", 1000)
    assert verify(spark, str(tmp_path), expected).ok
    with path.open("a") as stream:
        stream.write('{"q": "a", "n": 1.5}\n')
    verdict = verify(spark, str(tmp_path), expected)
    assert (verdict.lost, verdict.duplicated, verdict.unexpected) == (0, 0, 1)
    with path.open("a") as stream:
        stream.write('{"q": "a"}{"q": "b"}\n')
    with pytest.raises(SourceDataError, match=r"part-0\.jsonl, line 42: Extra data"):
        verify(spark, str(tmp_path), expected)


NUMBERS = {
    "tinyint": ["0", "127"],
    "int": ["0", "16777217"],
    "long": ["0", "9007199254740993", "9223372036854775807", "1152921504606846976"],
    "float": ["0", "16777216", "0.1"],
    "double": ["0", "9007199254740992", "9223372036854775807", "0.1", "1152921504606846976"],
    "decimal(38,0)": ["0", "9007199254740993", "99999999999999999999999999999999999999"],
    "decimal(38,18)": ["0", "0.1", "9007199254740993", "0.100000000000000001"],
}


def exact(kind: str, text: str) -> Decimal:
    if kind == "double":
        return Decimal(float(text))
    return (
        Decimal(float(pa.scalar(float(text), pa.float32()).as_py()))
        if kind == "float"
        else Decimal(text)
    )


def are_equal(left: tuple[str, str], right: tuple[str, str]) -> bool:
    """Numbers of one kind by their value; a decimal and a double if each is what the other prints as."""
    one, other = exact(*left), exact(*right)
    floats = [kind in ("float", "double") for kind, _ in (left, right)]
    if floats[0] == floats[1]:
        return one == other
    binary, whole = (one, other) if floats[0] else (other, one)
    return float(whole) == float(binary) and (
        binary == whole or Decimal(repr(float(binary))) == whole
    )


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_numbers_of_two_types_are_equal_only_if_they_are(spark: SparkSession, ansi: str) -> None:
    """All pairs of types and values at once: a column for each, so that one comparison judges all."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    sides = [(kind, text) for kind, texts in NUMBERS.items() for text in texts]
    try:
        for left in NUMBERS:
            pairs = [
                ((left, text), right)
                for text in NUMBERS[left]
                for right in sides
                if right[0] != left
            ]
            names = [f"c{place}" for place in range(len(pairs))]
            cells = [
                ", ".join(
                    f"cast('{text}' as {kind}) {name}"
                    for name, (kind, text) in zip(names, side, strict=True)
                )
                for side in zip(*pairs, strict=True)
            ]
            output, expected = (spark.sql(f"SELECT {one}") for one in cells)
            present, wanted = align(Found(output), Found(expected))
            [there], [right] = present.collect(), wanted.collect()
            found = [there[name] == right[name] for name in names]
            assert found == [are_equal(*pair) for pair in pairs], list(
                zip(pairs, there, right, strict=True)
            )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_collations_do_not_make_texts_equal(spark: SparkSession) -> None:
    one = spark.sql("SELECT 'A' COLLATE UTF8_LCASE AS t, array('A' COLLATE UTF8_LCASE) AS l")
    other = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS t, array('a' COLLATE UTF8_LCASE) AS l")
    for name in ("t", "l"):
        assert not verify(spark, one.select(name), other.select(name)).ok
    assert verify(spark, one, one).ok


def test_only_maps_tell_rows_apart(spark: SparkSession) -> None:
    one, other = spark.sql("SELECT map('a', 1) m"), spark.sql("SELECT map('a', 2) m")
    verdict = verify(spark, one, other)
    assert (verdict.lost, verdict.unexpected) == (1, 1)
    assert verdict.examples["lost"] == [{"row": {"m": {"a": 2}}, "times": 1}]
    assert verify(spark, one, other, keys=["m"]).lost == 1


def test_sessions_do_not_change_what_parquet_holds(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"day": [dt.date(1500, 3, 1)], "at": [dt.datetime(1500, 1, 1)]})
    pq.write_table(table, tmp_path / "a.parquet")
    expected = spark.sql("SELECT date'1500-03-01' day, timestamp_ntz'1500-01-01 00:00:00' at")
    options = {
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.files.ignoreCorruptFiles": "true",
    }
    for name, value in options.items():
        spark.conf.set(name, value)
    try:
        assert verify(spark, str(tmp_path), expected).ok
        (tmp_path / "b.parquet").write_text("nonsense")
        with pytest.raises(SourceDataError, match=r"b\.parquet"):
            verify(spark, str(tmp_path), expected)
    finally:
        for name in options:
            spark.conf.unset(name)


def test_columns_that_differ_in_case_from_file_to_file_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"K": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ConfigurationError, match=r"some files have the column K, others k"):
        verify(spark, str(tmp_path), spark.sql("SELECT 1L k"))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int", ["7", "-1", None], ["007", "1e3", "99999999999", "7.0", ""]),
        ("date", ["2024-01-01"], ["2024-1-1", "2024-02-30"]),
        ("boolean", ["true"], ["True", "1"]),
        ("double", ["1.5", "1.0E10", "-0.1"], ["01.5", "0.10000000000000000001", "x"]),
        ("decimal(4,2)", ["1.5", "-12.34"], ["1.555", "123", "1e1"]),
        ("timestamp", ["2024-01-01 00:00:00+00:00"], ["2024-01-01"]),
    ],
)
def test_what_folders_are_called_has_the_expected_type_if_it_is_written_so(
    spark: SparkSession, tmp_path: Path, kind: str, good: list[str | None], bad: list[str]
) -> None:
    write = in_folders(
        lambda folder, rows: pq.write_table(pa.Table.from_pylist(rows), folder / "p.parquet")
    )
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir()
    write(right, [{"part": text, "v": 1} for text in good])
    cells = [f"(cast({'null' if text is None else repr(text)} as {kind}), 1L)" for text in good]
    expected = spark.sql(f"SELECT * FROM VALUES {', '.join(cells)} AS t(part, v)")
    assert verify(spark, str(right), expected).ok
    for text in filter(None, bad):
        wrong.mkdir(exist_ok=True)
        write(wrong, [{"part": text, "v": 1}])
        with pytest.raises(ConfigurationError, match=r"is not how .* is written"):
            verify(spark, str(wrong), expected)
        for path in wrong.rglob("*.parquet"):
            path.unlink()


def test_on_the_command_line_folders_count_as_they_are_called(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = in_folders(
        lambda folder, rows: pq.write_table(pa.Table.from_pylist(rows), folder / "p.parquet")
    )
    for name, part in (("one", "007"), ("other", "7")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, [{"part": part, "v": 1.01}])
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"part": [7], "v": [1.0]}), tmp_path / "plain" / "p.parquet")
    one, other, plain = (str(tmp_path / name) for name in ("one", "other", "plain"))
    assert main([one, one]) == 0
    assert main([one, other]) == 1
    assert main([plain, other, "--tolerance", "v=0.01"]) == 0
    assert main([other, plain, "--tolerance", "v=1%"]) == 0
    assert main([other, plain, "--tolerance", "v=0.1%"]) == 1
    capsys.readouterr()
    assert main([plain, one]) == 2
    assert "the folder part=007 is not how bigint is written" in capsys.readouterr().err


def test_tolerance_pairs_and_shows_numbers(spark: SparkSession) -> None:
    expected = spark.sql("SELECT * FROM VALUES ('k', 10.0D), ('k', 10.001D), ('m', 5D) AS t(k, x)")
    output = spark.sql(
        "SELECT * FROM VALUES ('k', 10.0009D), ('k', 10.0012D), ('m', 6D) AS t(k, x)"
    )
    verdict = verify(spark, output, expected, tolerance={"x": 0.002})
    assert (verdict.lost, verdict.unexpected) == (1, 1)
    assert verdict.examples["unexpected"] == [{"row": {"k": "m", "x": 6.0}, "times": 1}]
    longs = spark.sql("SELECT 'k' k, 9007199254740993L x")
    near = spark.sql("SELECT 'k' k, 9007199254740992L x")
    assert not verify(spark, near, longs, tolerance={"x": 0}).ok
    assert verify(spark, near, longs, tolerance={"x": 1}).ok
    money, cent = spark.sql("SELECT 'k' k, 1.00BD x"), spark.sql("SELECT 'k' k, 1.01BD x")
    assert verify(spark, cent, money, tolerance={"x": 0.01}).ok
    assert not verify(spark, cent, money, tolerance={"x": 0.009}).ok
    maps = "SELECT map('b', 2, 'a', -0.0D) m, {} x"
    assert verify(
        spark,
        spark.sql(maps.format("1.0D")),
        spark.sql("SELECT map('a', 0.0D, 'b', 2) m, 1L x"),
        tolerance={"x": 0},
    ).ok
