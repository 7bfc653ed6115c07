"""Advice on real jobs that were made to have a disease, and on a healthy one."""

from __future__ import annotations

import json
import time

import pytest
from typer.testing import CliRunner

from minirt import Checkpointing, DiscardSink, Environment, Limits, Options
from minirt.cli import app
from minirt.inspect import open_checkpoints
from tests.runtime.jobs import Numbers

pytestmark = pytest.mark.processes

ENTRIES = 6
"""How often the load must have been stored before anybody asks for advice."""

OPTIONS = Options(
    limits=Limits(load_s=0.5, input_queue_bytes=1000, output_queue_bytes=500, frame_bytes=200)
)


def run(tmp_path, env: Environment, mode: str, seconds: float) -> list[str]:
    checkpointing = Checkpointing(tmp_path, interval="500ms", mode=mode)
    job = env.start(checkpointing=checkpointing, options=OPTIONS)
    deadline = time.monotonic() + 120
    try:
        time.sleep(seconds)
        while len(open_checkpoints(tmp_path).load()) < ENTRIES and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        job.cancel()
        job.wait_for_end()
    answer = CliRunner().invoke(app, ["advise", str(tmp_path), "--json"])
    assert answer.exit_code == 0, answer.output
    return [advice["topic"] for advice in json.loads(answer.stdout)]


def slow(n):
    time.sleep(0.003)
    return n


def test_an_operator_that_is_too_slow_is_found_and_what_its_barriers_wait_for(tmp_path):
    env = Environment("slow", parallelism=2)
    numbers = env.source(Numbers(None), uid="numbers")
    numbers.rebalance().map(slow, uid="slow").sink(DiscardSink(), uid="out")
    found = run(tmp_path, env, "aligned", 4.0)
    assert found[0] == "parallelism"
    assert {"debloat", "unaligned"} & {*found}


def test_keys_with_most_of_the_records_are_found(tmp_path):
    env = Environment("skewed", parallelism=3)
    numbers = env.source(Numbers(None), uid="numbers")
    keyed = numbers.key_by(lambda n: 0 if n % 10 < 8 else n % 97)
    keyed.map(slow, uid="slow").sink(DiscardSink(), uid="out")
    found = run(tmp_path, env, "unaligned", 1.0)
    assert found[0] in ("skew", "redesign")
    assert "parallelism" not in found


def test_a_healthy_job_is_left_alone(tmp_path):
    env = Environment("healthy", parallelism=2)
    numbers = env.source(Numbers(None, per_second=500), uid="numbers")
    numbers.rebalance().map(lambda n: n, uid="quick").sink(DiscardSink(), uid="out")
    assert run(tmp_path, env, "aligned", 1.0) == []
