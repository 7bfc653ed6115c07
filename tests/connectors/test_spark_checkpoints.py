"""`spark.read.format("minirt")`: what checkpoints hold, as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minirt.storage.checkpoints import CheckpointStorage
from tests.inspect.scenario import LINK, frame, new_storage, store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    storage = new_storage(str(tmp_path / "chk"))
    store(storage, 1, {"value": {"a": 1}})
    states = {"value": {"a": 1, "b": 2, "c": 3}, "seen": {("a", 1): {"n": 1.5}}}
    frames = [frame({"id": 1}, {"id": 2}, times=[10, 20]), frame({"id": 3})]
    store(storage, 2, states, frames=frames)
    return storage


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    from minirt_connectors.spark import register

    register(spark)
    return spark


def load(spark: SparkSession, storage: CheckpointStorage, **options: str) -> DataFrame:
    return spark.read.format("minirt").options(path=storage.store.root, **options).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_state_comes_typed_one_partition_a_stored_part(
    spark: SparkSession, storage: CheckpointStorage
) -> None:
    state = load(spark, storage, uid="total", state="value")
    assert dict(state.dtypes)["value"] == "bigint"
    assert state.rdd.getNumPartitions() == 2
    assert sorted((row["key"], row["value"], row["subtask"]) for row in rows(state)) == [
        ("a", 1, 0),
        ("b", 2, 1),
        ("c", 3, 0),
    ]
    assert state.selectExpr("sum(value)").collect()[0][0] == 6
    older = load(spark, storage, checkpoint="1", state="value")
    assert [(row["key"], row["value"]) for row in rows(older)] == [("a", 1)]


def test_tuples_and_records_become_structs(spark: SparkSession, storage: CheckpointStorage) -> None:
    [row] = rows(load(spark, storage, state="seen"))
    assert (row["key"], row["value"]) == ({"_1": "a", "_2": 1}, {"n": 1.5})


def test_states_of_several_types_are_json_text(
    spark: SparkSession, storage: CheckpointStorage
) -> None:
    everything = load(spark, storage)
    assert {(row["name"], row["key"], row["value"]) for row in rows(everything)} == {
        ("value", '"a"', "1"),
        ("value", '"b"', "2"),
        ("value", '"c"', "3"),
        ("seen", '["a", 1]', '{"n": 1.5}'),
    }
    as_json = load(spark, storage, state="value", values="json")
    assert {row["value"] for row in rows(as_json)} == {"1", "2", "3"}


def test_records_in_flight(spark: SparkSession, storage: CheckpointStorage) -> None:
    records = load(spark, storage, what="in-flight")
    assert [(row["timestamp"], row["record"]) for row in rows(records)] == [
        (10, {"id": 1}),
        (20, {"id": 2}),
        (None, {"id": 3}),
    ]
    assert {row["link"] for row in rows(records)} == {LINK}
    assert rows(load(spark, storage, what="in-flight", uid="out")) == []


def test_history_and_contents_of_all_checkpoints(
    spark: SparkSession, storage: CheckpointStorage
) -> None:
    history = rows(load(spark, storage, what="history"))
    assert [(row["checkpoint_id"], row["status"], row["stored"]) for row in history] == [
        (1, "completed", "kept"),
        (2, "completed", "kept"),
    ]
    assert (history[0]["duration_s"], history[0]["triggered_at"].year) == (0.5, 2023)
    held = load(spark, storage, what="checkpoints").where("uid = 'total'")
    totals = held.groupBy("checkpoint_id", "name").sum("entries").collect()
    assert sorted(map(tuple, totals)) == [(1, "value", 1), (2, "seen", 1), (2, "value", 3)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"what": "windows"}, "what must be one of state, in-flight, history, checkpoints"),
        ({"uid": "nobody"}, "has no operator 'nobody'; there are: 'numbers', 'total', 'out'"),
        ({"uid": "total", "state": "x"}, "has no state 'x'"),
        ({"checkpoint": "9"}, "no checkpoint 9"),
        ({"colour": "red"}, "no option colour"),
        ({"what": "history", "uid": "total"}, "option uid has no effect with what=history"),
        ({"values": "xml"}, "values must be typed or json"),
    ],
)
def test_what_cannot_work_is_refused(
    spark: SparkSession, storage: CheckpointStorage, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Exception, match="ConfigurationError") as caught:
        load(spark, storage, **options).collect()
    assert complaint in str(caught.value)
