"""verify: Spark's verdict on output that is right, and on output that is wrong in each way."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.errors import ConfigurationError, SourceDataError, StorageError
from minirt_connectors.spark import Verdict, verify
from minirt_connectors.spark.verify import main

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.cli.conftest import Call

pytestmark = pytest.mark.spark

COLUMNS = "k string, v int"


@pytest.fixture
def expected(spark: SparkSession) -> DataFrame:
    return frame(spark, [("a", 1), ("b", 2), ("b", 2), (None, None)])


TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def frame(spark: SparkSession, rows: list[Any], columns: str = COLUMNS) -> DataFrame:
    # By way of Arrow, Spark keeps the rows in its plan and starts a third of the tasks.
    fields = [tuple(column.split()) for column in columns.split(", ")]
    schema = pa.schema([(name, TYPES[kind]) for name, kind in fields])
    names = schema.names
    records = [dict(zip(names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(records, schema))


def counts(verdict: Verdict) -> tuple[int, int, int]:
    return verdict.lost, verdict.duplicated, verdict.unexpected


def write_rows(path: Path, rows: list[tuple[Any, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ks, vs = zip(*rows, strict=True)
    pq.write_table(pa.table({"k": pa.array(ks, pa.string()), "v": pa.array(vs, pa.int32())}), path)


def test_equal_multisets_are_ok_whatever_their_order(
    spark: SparkSession, expected: DataFrame
) -> None:
    output = frame(spark, [(2, "b"), (None, None), (1, "a"), (2, "b")], "v int, k string")
    verdict = verify(spark, output, expected)
    assert verdict.ok
    assert verdict == Verdict(4, 4, 0, 0, 0)


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1), ("b", 2), (None, None)],
        [("a", 1), ("a", 1), ("b", 2), ("b", 2), (None, None), (None, None), (None, None)],
        [("a", 1), ("b", 2), ("b", 2), ("c", 3), ("c", 3), ("a", None)],
        [("b", 1)],
        [],
    ],
)
def test_counts_are_those_of_a_multiset_difference(
    spark: SparkSession, expected: DataFrame, rows: list[Any]
) -> None:
    want = Counter([("a", 1), ("b", 2), ("b", 2), (None, None)])
    have = Counter(rows)
    verdict = verify(spark, frame(spark, rows), expected)
    surplus = have - want
    assert verdict.lost == (want - have).total()
    assert verdict.duplicated == sum(n for row, n in surplus.items() if row in want)
    assert verdict.unexpected == sum(n for row, n in surplus.items() if row not in want)
    assert (verdict.rows_expected, verdict.rows_output) == (4, len(rows))
    assert not verdict.ok


def test_examples_show_the_rows(spark: SparkSession, expected: DataFrame) -> None:
    output = frame(spark, [("b", 2), ("b", 2), ("b", 2), ("b", 2), (None, None), ("c", 3)])
    verdict = verify(spark, output, expected)
    assert verdict.examples == {
        "lost": [{"row": {"k": "a", "v": 1}, "times": 1}],
        "duplicated": [{"row": {"k": "b", "v": 2}, "times": 2}],
        "unexpected": [{"row": {"k": "c", "v": 3}, "times": 1}],
    }


def test_examples_are_limited_and_the_first_ones(spark: SparkSession) -> None:
    output = frame(spark, [(f"{i:02}", i) for i in reversed(range(20))])
    verdict = verify(spark, output, frame(spark, []), examples=3)
    assert verdict.unexpected == 20
    assert [each["row"]["v"] for each in verdict.examples["unexpected"]] == [0, 1, 2]


def test_with_keys_a_wrong_value_is_unexpected_and_shown_with_the_right_one(
    spark: SparkSession,
) -> None:
    expected = frame(spark, [("a", 1), ("b", 2), ("c", 3), (None, 4)])
    output = frame(spark, [("a", 1), ("b", 9), ("d", 5), (None, 4)])
    verdict = verify(spark, output, expected, keys=["k"])
    assert counts(verdict) == (1, 0, 2)
    assert verdict.examples["lost"] == [{"row": {"k": "c", "v": 3}, "times": 1}]
    assert verdict.examples["unexpected"] == [
        {"row": {"k": "b", "v": 9}, "expected_row": {"k": "b", "v": 2}, "times": 1},
        {"row": {"k": "d", "v": 5}, "times": 1},
    ]


def test_with_keys_a_second_result_of_a_key_is_duplicated_even_with_other_values(
    spark: SparkSession,
) -> None:
    expected = frame(spark, [("a", 1), ("b", 2)])
    output = frame(spark, [("a", 1), ("a", 7), ("b", 2), ("b", 2)])
    verdict = verify(spark, output, expected, keys=["k"])
    assert counts(verdict) == (0, 2, 0)
    assert verdict.examples["duplicated"] == [
        {"row": {"k": "a", "v": 7}, "expected_row": {"k": "a", "v": 1}, "times": 1},
        {"row": {"k": "b", "v": 2}, "times": 1},
    ]


def test_narrow_types_are_widened_and_not_rounded(spark: SparkSession) -> None:
    expected = frame(spark, [("a", 1), ("b", 2)])
    assert verify(spark, frame(spark, [("a", 1.0), ("b", 2.0)], "k string, v double"), expected).ok
    wrong = frame(spark, [("a", 1.0), ("b", 2.5)], "k string, v double")
    assert counts(verify(spark, wrong, expected)) == (1, 0, 1)
    large = frame(spark, [("a", 1), ("b", 2 + 2**32)], "k string, v long")
    assert counts(verify(spark, large, expected)) == (1, 0, 1)
    decimal = spark.sql("SELECT * FROM VALUES ('a', 1.00BD), ('b', 2.01BD) AS t(k, v)")
    assert counts(verify(spark, decimal, expected)) == (1, 0, 1)


def test_columns_that_do_not_fit_are_refused(spark: SparkSession, expected: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match="missing v; in excess w, x"):
        verify(spark, frame(spark, [], "w int, k string, x int"), expected)
    with pytest.raises(ConfigurationError, match="column v is string in the output and int"):
        verify(spark, frame(spark, [], "k string, v string"), expected)
    with pytest.raises(ConfigurationError, match="keys: no column q"):
        verify(spark, expected, expected, keys=["q"])
    with pytest.raises(ConfigurationError, match="keys is a list"):
        verify(spark, expected, expected, keys="k")


def test_tolerance_accepts_near_numbers_of_the_same_key_only(spark: SparkSession) -> None:
    columns = "k string, x double, y double"
    expected = frame(spark, [("a", 1.0, 5.0), ("a", 2.0, 5.0), ("b", None, 0.0)], columns)
    near = frame(spark, [("a", 2.04, 5.0), ("a", 0.96, 5.0), ("b", None, 0.0)], columns)
    assert verify(spark, near, expected, tolerance={"x": 0.05}).ok
    assert counts(verify(spark, near, expected, tolerance={"x": 0.01})) == (2, 0, 2)
    other_key = frame(spark, [("b", 1.0, 5.0), ("a", 2.0, 5.0), ("b", None, 0.0)], columns)
    assert counts(verify(spark, other_key, expected, tolerance={"x": 9})) == (1, 0, 1)
    null = frame(spark, [("a", 1.0, 5.0), ("a", None, 5.0), ("b", 0.0, 0.0)], columns)
    assert counts(verify(spark, null, expected, tolerance={"x": 9})) == (2, 0, 2)
    shifted = frame(spark, [("a", 1.1, 5.1), ("a", 2.1, 5.1), ("b", None, 0.1)], columns)
    assert verify(spark, shifted, expected, keys=["k"], tolerance={"x": 0.2, "y": 0.2}).ok
    assert not verify(spark, shifted, expected, keys=["k"], tolerance={"x": 0.2, "y": 0.01}).ok


def test_a_tolerance_that_makes_no_sense_is_refused(
    spark: SparkSession, expected: DataFrame
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"q": 1}, "no column q"),
        ({"k": 1}, "column k is string, not a number"),
        ({"v": -1}, "must be finite and not negative"),
    ]
    for tolerance, match in wrong:
        with pytest.raises(ConfigurationError, match=match):
            verify(spark, expected, expected, tolerance=tolerance)
    with pytest.raises(ConfigurationError, match="one of the keys"):
        verify(spark, expected, expected, keys=["v"], tolerance={"v": 1})
    only = expected.select("v")
    with pytest.raises(ConfigurationError, match="at least one column"):
        verify(spark, only, only, tolerance={"v": 1})


def test_only_committed_files_are_read(
    spark: SparkSession, expected: DataFrame, tmp_path: Path
) -> None:
    write_rows(tmp_path / "part-0.parquet", [("a", 1), ("b", 2)])
    write_rows(tmp_path / "part-1.parquet", [("b", 2), (None, None)])
    write_rows(tmp_path / "_pending" / "part-2.parquet", [("z", 26)])
    write_rows(tmp_path / ".part-3.parquet.inprogress", [("z", 26)])
    assert verify(spark, str(tmp_path), expected).ok


def test_a_folder_without_committed_files_has_lost_everything(
    spark: SparkSession, expected: DataFrame, tmp_path: Path
) -> None:
    write_rows(tmp_path / "_pending" / "part-2.parquet", [("a", 1)])
    assert counts(verify(spark, str(tmp_path), expected)) == (4, 0, 0)


def test_jsonl_is_read_with_the_expected_types(spark: SparkSession, tmp_path: Path) -> None:
    expected = spark.sql(
        """SELECT timestamp '2013-01-01 05:00:00.000001' AS at, 1.50BD AS price,
                  named_struct('b', 1, 'a', 'x') AS nested, cast(null AS double) AS mean"""
    )
    line = (
        '{"nested": {"b": 1, "a": "x"}, "at": "2013-01-01T05:00:00.000001+00:00", '
        '"price": %s, "mean": null}'
    )
    (tmp_path / "part-0.jsonl").write_text(line % "1.5" + "\n")
    assert verify(spark, str(tmp_path), expected).ok
    (tmp_path / "part-0.jsonl").write_text(line % "1.6" + "\n")
    assert counts(verify(spark, str(tmp_path), expected)) == (1, 0, 1)


def test_jsonl_of_another_type_is_an_error_and_not_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "part-0.jsonl").write_text('{"k": "a", "v": "many"}\n')
    with pytest.raises(SourceDataError, match="cannot compare the output"):
        verify(spark, str(tmp_path), frame(spark, [("a", None)]))


def test_a_damaged_file_is_an_error(
    spark: SparkSession, expected: DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "part-0.parquet").write_text("nonsense")
    with pytest.raises(SourceDataError, match=r"part-0\.parquet"):
        verify(spark, str(tmp_path), expected)


def test_paths_that_hold_something_else_are_refused(
    spark: SparkSession, expected: DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="there is nothing"):
        verify(spark, str(tmp_path / "nowhere"), expected)
    (tmp_path / "a.csv").write_text("k,v\n")
    with pytest.raises(ConfigurationError, match=r"not .*a\.csv"):
        verify(spark, str(tmp_path), expected)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.jsonl").write_text("{}\n")
    write_rows(tmp_path / "b.parquet", [("a", 1)])
    with pytest.raises(ConfigurationError, match="both Parquet and JSONL"):
        verify(spark, str(tmp_path), expected)


def test_the_report_is_plain_json(spark: SparkSession, tmp_path: Path) -> None:
    columns = "at timestamp, x double, raw binary"
    row = (dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), float("nan"), b"\x01\xff")
    report = tmp_path / "verdict.json"
    verdict = verify(
        spark, frame(spark, [row], columns), frame(spark, [], columns), report=str(report)
    )
    assert verdict.unexpected == 1
    parsed = json.loads(report.read_text(), parse_constant=pytest.fail)
    assert parsed["ok"] is False
    assert parsed["rows_output"] == parsed["unexpected"] == 1
    assert parsed["examples"]["unexpected"][0]["row"]["x"] == "nan"
    assert parsed["examples"]["unexpected"][0]["row"]["raw"] == "01ff"


def test_a_verdict_prints_counts_and_findings() -> None:
    finding = {"row": {"k": "b", "v": 9}, "expected_row": {"k": "b", "v": 2}, "times": 2}
    text = str(Verdict(1000, 1002, 0, 0, 2, {"unexpected": [finding]}))
    assert "1,002" in text
    assert "unexpected: k=b, v=9 instead of k=b, v=2 (2 times)" in text
    assert "DIFFERENT" in text
    assert "ok" in str(Verdict(1, 1, 0, 0, 0))


def test_map_columns_can_be_compared(spark: SparkSession) -> None:
    one = spark.sql("SELECT 1 AS id, map('a', 1, 'b', 2) AS m")
    other = spark.sql("SELECT 1 AS id, map('b', 2, 'a', 1) AS m")
    wrong = spark.sql("SELECT 1 AS id, map('a', 1, 'b', 3) AS m")
    assert verify(spark, one, other).ok
    assert counts(verify(spark, wrong, one)) == (1, 0, 1)


def test_the_command_line_tells_by_its_exit_status(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    write_rows(right / "part-0.parquet", [("a", 1), ("b", 2)])
    write_rows(wrong / "part-0.parquet", [("a", 1), ("b", 3)])
    report = tmp_path / "verdict.json"
    assert main([str(right), str(right)]) == 0
    assert "ok" in capsys.readouterr().out
    assert main([str(wrong), str(right), "--keys", "k", "--json", str(report)]) == 1
    assert "k=b, v=3 instead of k=b, v=2" in capsys.readouterr().out
    assert json.loads(report.read_text())["unexpected"] == 1
    assert main([str(tmp_path / "nowhere"), str(right)]) == 2
    assert "there is nothing" in capsys.readouterr().err
    assert main(["one"]) == 2
    assert "usage: python -m minirt_connectors.spark.verify" in capsys.readouterr().err


def test_the_command_of_minirt_tells_by_its_exit_status(
    spark: SparkSession, call: Call, tmp_path: Path
) -> None:
    right, wrong, report = tmp_path / "right", tmp_path / "wrong", tmp_path / "verdict.json"
    for folder, value in ((right, 1), (wrong, 2)):
        folder.mkdir()
        (folder / "part-0.jsonl").write_text(f'{{"k": "a", "v": {value}}}\n')
    assert call("verify", str(right), str(right)).status == 0
    differs = call("verify", str(wrong), str(right), "--keys", "k", "--json", str(report))
    assert differs.status == 1
    assert "k=a, v=2 instead of k=a, v=1" in differs.out
    assert json.loads(report.read_text())["unexpected"] == 1
    missing = call("verify", str(tmp_path / "nowhere"), str(right))
    assert (missing.status, missing.err.count("\n")) == (2, 1)
    assert "there is nothing" in missing.err
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "part-0.jsonl").write_text('{"k": "a", "v": 1}{"k": "a", "v": 1}\n')
    refused = call("verify", str(torn), str(right))
    assert (refused.status, refused.out) == (2, "")
    assert "part-0.jsonl, line 1: Extra data" in refused.err
    near = call("verify", str(wrong), str(right), "--tolerance", "v=100%")
    assert (near.status, near.out) == (2, "")
    assert call("verify", str(wrong), str(right), "--tolerance", "v=1").status == 0
    unwritable = call("verify", str(right), str(right), "--json", str(tmp_path / "no" / "x.json"))
    assert unwritable.status == 2
    assert "cannot write the verdict" in unwritable.err
