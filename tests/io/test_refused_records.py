"""A record that no restart would change ends the job at once; what may pass is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Batch
from minirt.io.base import SinkContext, SinkWriter

RESTARTS = rt.Restart.fixed_delay(3, "1ms")
Build = Callable[[rt.Environment, Path], Any]


def run(build: Build, folder: Path) -> rt.JobResult:
    env = rt.Environment("refused")
    build(env, folder)
    checkpointing = rt.Checkpointing(folder / "chk", interval="10ms")
    return env.execute(runner="inline", checkpointing=checkpointing, restart=RESTARTS)


def file(folder: Path, text: str, suffix: str = "jsonl") -> Path:
    path = folder / f"input.{suffix}"
    path.write_text(text)
    return path


def lines(env: rt.Environment, folder: Path, text: str, **options: Any) -> rt.Stream[Any]:
    watermarks = options.pop("watermarks", None)
    source = rt.JsonlSource(file(folder, text), **options)
    return env.source(source, uid="in", watermarks=watermarks)


def to_sink(sink: Callable[[Path], Any], record: dict[str, Any]) -> Build:
    def build(env: rt.Environment, folder: Path) -> None:
        records = env.source(rt.CollectionSource([{"id": 1}, {"id": 2}, record]), uid="in")
        records.sink(sink(folder / "out"), uid="out")

    return build


def discarded(source: Callable[[rt.Environment, Path], rt.Stream[Any]]) -> Build:
    return lambda env, folder: source(env, folder).sink(rt.DiscardSink(), uid="out")


SCHEMA = pa.schema([("id", pa.int64())])
MARKS = rt.Watermarks.bounded("1s", timestamp="at")
BAD_INPUT: dict[str, tuple[Build, str]] = {
    "json": (
        discarded(lambda env, folder: lines(env, folder, '{"id": 1}\n{"id"\n')),
        r"input\.jsonl, byte 10: not valid JSON .*on_error=\"skip\" or \"side_output\" goes on",
    ),
    "json columns": (
        discarded(
            lambda env, folder: lines(env, folder, '{"id": 1}\n{"id": "x"}\n', schema=SCHEMA)
        ),
        r"input\.jsonl, byte 10: not valid JSON for the schema .*on_error=\"skip\"",
    ),
    "csv": (
        discarded(
            lambda env, folder: env.source(
                rt.CsvSource(file(folder, "id\n1\nx\n", "csv"), types={"id": pa.int64()}), uid="in"
            )
        ),
        r"input\.csv, byte 5: .*on_error=\"skip\"",
    ),
    "event time": (
        discarded(lambda env, folder: lines(env, folder, '{"id": 1}\n', watermarks=MARKS)),
        r"column 'at', which is missing in \{'id': 1\}",
    ),
    "event time in columns": (
        discarded(
            lambda env, folder: lines(
                env,
                folder,
                '{"at": null}\n',
                schema=pa.schema([("at", pa.int64())]),
                watermarks=MARKS,
            )
        ),
        r"column 'at' .* holds 1 nulls",
    ),
}
BAD_OUTPUT: dict[str, tuple[Build, str]] = {
    "json": (to_sink(rt.JsonlSink, {"id": float("nan")}), r"out.*nan has no form in JSON"),
    "parquet": (
        to_sink(lambda path: rt.ParquetSink(path, schema=SCHEMA), {"id": "x"}),
        r"column 'id'.* in record \{'id': 'x'\}",
    ),
    "partition": (
        to_sink(lambda path: rt.JsonlSink(path, partition_by="day"), {"id": 3, "day": 1}),
        r"column 'day': missing in record \{'id': 1\}",
    ),
}


@pytest.mark.parametrize(
    ("build", "message", "error"),
    [
        *((*case, rt.BadRecordError) for case in BAD_INPUT.values()),
        *((*case, rt.SinkDataError) for case in BAD_OUTPUT.values()),
    ],
    ids=[*BAD_INPUT, *(f"to {name}" for name in BAD_OUTPUT)],
)
def test_the_job_fails_at_once(
    build: Build, message: str, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(
        rt.JobFailedError, match=rf"(?s)^job 'refused' failed: .*{message}"
    ) as failed:
        run(build, tmp_path)
    assert type(failed.value.__cause__) is error


class _Outage(rt.DiscardSink):
    """Its first writer fails, as that of a system that is down."""

    def __init__(self, error: Exception, down: Path) -> None:
        self._error, self._down = error, down

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _OutageWriter(self._error, self._down)


class _OutageWriter(SinkWriter):
    def __init__(self, error: Exception, down: Path) -> None:
        self._error, self._down = error, down

    def write(self, batch: Batch) -> None:
        if self._down.exists():
            self._down.unlink()
            raise self._error


@pytest.mark.parametrize("error", [OSError("no route to host"), rt.StorageError("down")])
def test_a_writer_whose_system_is_down_is_tried_again(error: Exception, tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    build = to_sink(lambda _: _Outage(error, tmp_path / "down"), {"id": 3})
    assert run(build, tmp_path).restarts == 1


def test_an_input_file_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    path = file(tmp_path, '{"id": 1}\n')

    class Returning(rt.JsonlSource):
        def open_split(self, split: Any, offset: Any) -> Any:
            if path.exists():
                away = path.rename(tmp_path / "away")
                try:
                    return super().open_split(split, offset)
                finally:
                    away.rename(tmp_path / "back")
            (tmp_path / "back").rename(path)
            return super().open_split(split, offset)

    build = discarded(lambda env, folder: env.source(Returning(path), uid="in"))
    assert run(build, tmp_path).restarts == 1
