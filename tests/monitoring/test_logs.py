"""Log messages carry what they are about, in text and as JSON, from minirt and from user code."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minirt.monitoring.logs import (
    AddFields,
    JsonFormatter,
    TextFormatter,
    log_fields,
    set_up_program,
)
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.report import FiguresReport
from tests.monitoring.samples import graph, progress, totals


@pytest.fixture
def written() -> tuple[logging.Logger, io.StringIO, logging.Handler]:
    """A logger that writes to memory."""
    logger, stream = logging.Logger("own"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(AddFields(job="sums", generation=3))
    logger.addHandler(handler)
    return logger, stream, handler


def test_json_has_all_fields_of_whatever_is_going_on(written):
    logger, stream, handler = written
    handler.setFormatter(JsonFormatter())
    with log_fields(operator="total", subtask=1), log_fields(checkpoint=7):
        logger.warning(
            "took %d ms\nand more", 12, extra={"bytes": 5, "subtask": 2, "path": Path("a")}
        )
    logger.error("nothing")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "WARNING",
        "logger": "own",
        "message": "took 12 ms\nand more",
        "job": "sums",
        "generation": 3,
        "operator": "total",
        "subtask": 2,
        "checkpoint": 7,
        "bytes": 5,
        "path": "a",
    }
    assert second.keys() == {"time", "level", "logger", "message", "job", "generation"}


def test_json_is_json_whatever_users_add(written):
    class Mute:
        def __str__(self):
            raise ValueError("no words")

    logger, stream, handler = written
    handler.setFormatter(JsonFormatter())
    loop = []
    loop.append(loop)
    odd = {
        "nan": float("nan"),
        "keys": {(1, 2): "a"},
        "mute": Mute(),
        "loop": loop,
        "half": "\ud800",
    }
    logger.warning("odd", extra={**odd, "good": {"n": [1.5]}})
    [line] = stream.getvalue().splitlines()
    told = json.loads(line, parse_constant=pytest.fail)
    assert {name: told[name] for name in (*odd, "good")} == {
        "nan": "nan",
        "keys": "{(1, 2): 'a'}",
        "mute": "<Mute: ValueError>",
        "loop": "[[...]]",
        "half": "\ud800",
        "good": {"n": [1.5]},
    }


def test_json_has_the_traceback_of_an_error(written):
    logger, stream, handler = written
    handler.setFormatter(JsonFormatter())
    try:
        raise ValueError("a stone")
    except ValueError:
        logger.exception("stumbled")
    [line] = stream.getvalue().splitlines()
    assert "ValueError: a stone" in json.loads(line)["exception"]


def test_text_ends_with_the_fields(written):
    logger, stream, handler = written
    handler.setFormatter(TextFormatter())
    with log_fields(operator="total", subtask=0):
        logger.warning("slow")
    assert stream.getvalue().endswith(
        " WARNING own: slow [job=sums generation=3 operator=total subtask=0]\n"
    )


def test_a_program_that_logs_by_itself_is_left_alone(caplog):
    before = list(logging.getLogger("minirt").handlers)
    undo = set_up_program("json", "debug")
    assert logging.getLogger("minirt").handlers == before
    undo()


def test_figures_are_logged_every_now_and_then(caplog):
    now = [1000.0]
    monitor = JobMonitor(graph(), lambda: now[0])
    report = FiguresReport(monitor, every_s=10, monotonic=lambda: now[0])

    def seconds_later(seconds: float) -> None:
        now[0] += seconds
        news = progress(source=totals(now[0], busy=0.75, records_out=int(20 * now[0])))
        monitor.on_progress(news)
        report.on_progress(news)

    seconds_later(0)
    seconds_later(1)
    assert caplog.records == []  # which nobody wants to have
    with caplog.at_level(logging.INFO, "minirt"):
        for _ in range(25):
            seconds_later(1)
    assert len(caplog.records) == 3
    record: Any = caplog.records[0]
    assert (record.job, record.operator, record.subtask) == ("sums", "numbers", 0)
    assert record.per_second["busy_ms"] == 750
    assert "busy_ms 750, idle_ms 250" in record.getMessage()


JOB = """
import logging

import minirt as rt

log = logging.getLogger("shop")


class Total(rt.KeyedProcess):
    total = rt.ValueState(default=0)

    def open(self):
        log.info("open")

    def process(self, number, ctx):
        self.total.set(self.total.get() + number)
        if number == 7:
            log.info("seven", extra={"value": number})
        yield self.total.get()

    def close(self):
        log.info("close")


env = rt.Environment("sums")
numbers = env.source(rt.SequenceSource(50), uid="numbers").key_by(lambda n: 0)
numbers.process(Total(), uid="total").sink(rt.DiscardSink(), uid="out")
"""


@pytest.mark.processes
@pytest.mark.parametrize("log_format", ["json", "text"])
def test_what_operators_log_says_which_operator_it_was(tmp_path, log_format):
    (tmp_path / "job.py").write_text(JOB)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "minirt", "run", "job.py", "--storage", "stored"),
            *("--set", f"options.log_format={log_format}", "--set", "options.log_level=info"),
        ],
        cwd=tmp_path,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    if log_format == "text":
        seven = " INFO shop: seven [job=sums generation=1 operator=total subtask=0]\n"
        assert seven in ran.stderr
        assert "checkpoint 1 is complete" in ran.stderr
        return
    records = [json.loads(line) for line in ran.stderr.splitlines()]
    of_total = {"job": "sums", "generation": 1, "operator": "total", "subtask": 0}
    own = [record for record in records if record["logger"] == "shop"]
    assert [record["message"] for record in own] == ["open", "seven", "close"]
    assert all(record.items() >= of_total.items() for record in own)
    assert own[1]["value"] == 7
    [complete] = [record for record in records if record["message"].endswith("is complete")]
    assert complete["checkpoint"] == 1
    assert complete["duration_s"] > 0
    assert "job 'sums' is finished" in [record["message"] for record in records]
