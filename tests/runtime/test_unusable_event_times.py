"""A record without a usable event time is like one that does not parse: `on_error` counts for both."""

from __future__ import annotations

import datetime as dt
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.io.lines import BLOCK_LINES

GOOD: list[Any] = [1000, -5, 0, "2025-01-31", "2025-01-31T12:30:00+01:00", "2025-01-31T12:30:00.5"]
BAD: list[Any] = [None, "soon", "", 1.5, True, [], {}, 10**17, 10**30, "2025-13-01", "99999-01-01"]
NO_OBJECTS = ("[1, 2]", "null", "3", '"text"', "[]")
MISSING = "{}"


def jsonl(lines: list[str], path: Path) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read(
    source: rt.Source, marks: rt.Watermarks, *, parallelism: int = 1
) -> tuple[list[Any], list[Any]]:
    """The records and the errors."""
    env = rt.Environment(parallelism=parallelism)
    rows = env.source(source, uid="clicks", watermarks=marks)
    good, errors = rt.CollectSink(), rt.CollectSink()
    rows.sink(good, uid="good")
    if source.side_errors:
        rows.side_output("errors").sink(errors, uid="errors")
    env.execute(runner="inline")
    return good.rows, errors.rows


LINES = st.lists(
    st.one_of(
        st.sampled_from(GOOD).map(lambda at: json.dumps({"at": at})),
        st.sampled_from(BAD).map(lambda at: json.dumps({"at": at})),
        st.sampled_from([*NO_OBJECTS, MISSING, "no json", ""]),
    ),
    max_size=12,
)
TELLERS: list[Any] = ["at", lambda record: record["at"]]


def is_good(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and any(
        record.get("at") == at and type(record["at"]) is type(at) for at in GOOD
    )


@settings(deadline=None, max_examples=40)
@given(
    lines=LINES,
    filler=st.sampled_from([0, 0, BLOCK_LINES]),
    by=st.sampled_from(TELLERS),
    on_error=st.sampled_from(["skip", "side_output"]),
    kind=st.sampled_from(["bounded", "column"]),
)
def test_what_has_no_event_time_goes_where_on_error_says(
    tmp_path_factory: Any, lines: list[str], filler: int, by: Any, on_error: Any, kind: str
) -> None:
    lines = ['{"at": 1}'] * filler + lines
    path = jsonl(lines, tmp_path_factory.mktemp("clicks") / "clicks.jsonl")
    marks = rt.Watermarks.bounded("1s", timestamp=by)
    if kind == "column":
        marks = rt.Watermarks.from_column("at", timestamp=by)
    good, errors = read(rt.JsonlSource(path, on_error=on_error), marks)
    assert good == [json.loads(line) for line in lines[:filler]] + [
        json.loads(line) for line in lines[filler:] if is_good(line)
    ]
    if on_error == "skip":
        return
    bad = [
        place for place, line in enumerate(lines) if line and place >= filler and not is_good(line)
    ]
    found = {error["location"]: error["text"] for error in errors}
    starts = [sum(len(one) + 1 for one in lines[:place]) for place in bad]
    assert found == {
        f"{path}, byte {start}": lines[place] for start, place in zip(starts, bad, strict=True)
    }
    assert len(errors) == len(bad)
    assert all(error["error"] for error in errors)


@pytest.mark.parametrize("bad", [*(json.dumps({"at": at}) for at in BAD), *NO_OBJECTS, MISSING])
@pytest.mark.parametrize("by", TELLERS, ids=["column", "function"])
def test_by_default_the_job_fails_and_names_source_file_and_place(
    bad: str, by: Any, tmp_path: Path
) -> None:
    path = jsonl(['{"at": 1000}', bad], tmp_path / "clicks.jsonl")
    with pytest.raises(rt.JobFailedError, match=r"clicks.*clicks\.jsonl, byte 13"):
        read(rt.JsonlSource(path), rt.Watermarks.bounded("1s", timestamp=by))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_null_in_columns_is_told_with_its_line(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"clicks.{form}"
    source: rt.Source
    if form == "csv":
        path.write_text("at,n\n1000,1\n\n,2\n99999999999999999,3\n2000,4\n")
        source = rt.CsvSource(path, types={"at": "int"}, on_error="side_output")
        texts = [",2", "99999999999999999,3"]
    else:
        texts = ['{"n":2}', '{"at":99999999999999999,"n":3}']
        jsonl(['{"at":1000,"n":1}', "", *texts, '{"at":2000,"n":4}'], path)
        schema = pa.schema([("at", pa.int64()), ("n", pa.int64())])
        source = rt.JsonlSource(path, schema=schema, on_error="side_output")
    good, errors = read(source, rt.Watermarks.bounded("1s", timestamp="at"))
    assert [row["n"] for row in good] == [1, 4]
    assert [error["text"] for error in errors] == texts
    content = path.read_bytes()
    places = [int(error["location"].rpartition(" ")[2]) for error in errors]
    assert places == [content.index(text.encode()) for text in texts]


def test_texts_that_a_sink_has_written_are_event_times(tmp_path: Path) -> None:
    times = [
        dt.datetime(2025, 1, 31, 12, 30, 0, 500, dt.UTC),
        dt.datetime(2025, 1, 31, 12, 30),
        dt.datetime(2025, 1, 31, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
        dt.date(2025, 1, 31),
    ]
    env = rt.Environment()
    written = env.source(rt.CollectionSource([{"at": time} for time in times]), uid="times")
    written.sink(rt.JsonlSink(tmp_path), uid="out")
    env.execute(runner="inline")

    class Stamp(rt.Process):
        def process(self, record: Any, ctx: Any) -> Any:
            yield ctx.timestamp

    env = rt.Environment()
    marks = rt.Watermarks.bounded("1d", timestamp="at")
    rows = env.source(rt.JsonlSource(tmp_path), uid="again", watermarks=marks)
    expected = [
        int(dt.datetime(2025, 1, 31, hour, minute, tzinfo=dt.UTC).timestamp() * 1000)
        for hour, minute in ((12, 30), (12, 30), (17, 30), (0, 0))
    ]
    assert rows.process(Stamp()).collect() == expected


@pytest.mark.parametrize(
    ("times", "warned"),
    [
        ([1_735_689_600, 1_735_689_660], True),
        ([0, 1000], False),
        ([1_735_689_600_000], False),
        ([dt.datetime(1970, 1, 20)], False),
    ],
)
@pytest.mark.parametrize("by", TELLERS, ids=["column", "function"])
def test_seconds_in_the_place_of_milliseconds_are_warned_of(
    times: list[Any], warned: bool, by: Any, caplog: pytest.LogCaptureFixture
) -> None:
    records = [{"at": time} for time in times]
    with caplog.at_level(logging.WARNING):
        read(rt.CollectionSource(records), rt.Watermarks.bounded("1s", timestamp=by))
    told = [message for message in caplog.messages if "seconds" in message]
    assert len(told) == warned
    assert not warned or ("clicks" in told[0] and "1970-01-21" in told[0])
