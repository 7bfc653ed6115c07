"""Which workers may come back alone, and what the plan says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.api.keyed_stream import KeyedStream
from minirt.errors import ConfigurationError
from minirt.graph.comebacks import alone_by_worker
from minirt.graph.planner import build_execution_graph
from minirt.io.base import SinkContext, SinkWriter
from minirt.protocol.ids import SubtaskId
from minirt.runtime.program.shapes import place

ALONE = rt.Restart.fixed_delay(scope="subtask")


class OnceSink(rt.Sink):
    """One that does not say that its writers may be opened again."""

    def open_writer(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError


class Keep(rt.KeyedProcess):
    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[int]:
        yield record


class Later(rt.KeyedProcess):
    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        ctx.set_processing_timer(0)


def counts(env: rt.Environment) -> KeyedStream:
    numbers = env.source(rt.SequenceSource(4), uid="numbers", parallelism=1)
    return numbers.key_by(lambda n: n % 2)


def job(sink: rt.Sink | None = None) -> rt.Environment:
    env = rt.Environment(parallelism=3)
    counts(env).process(Keep(), uid="keep").sink(sink or rt.CollectSink(), uid="out")
    return env


def checkpointing(folder: Path, mode: str = "uncoordinated") -> rt.Checkpointing:
    return rt.Checkpointing(folder, mode=mode)


def by_column(keyed: KeyedStream) -> KeyedStream:
    return keyed.map(lambda n: {"n": n}).key_by("n")


def alone(env: rt.Environment, **options: object) -> dict[int, frozenset[SubtaskId]]:
    graph = build_execution_graph(env.graph("job"))
    placed = place(graph, rt.Options(**options))  # type: ignore[arg-type]
    return alone_by_worker(graph, placed, "subtask")


def test_workers_whose_subtasks_send_to_nobody_may() -> None:
    assert alone(job()) == {1 + index: frozenset({SubtaskId(1, index)}) for index in range(3)}


def test_one_that_hosts_a_sender_as_well_may_not() -> None:
    assert sorted(alone(job(), placement="slots")) == [1, 2]


def test_the_plan_says_it_of_each_vertex(tmp_path: Path) -> None:
    lines = job().plan(checkpointing=checkpointing(tmp_path)).splitlines()
    assert [line.strip() for line in lines if "if a worker is gone" in line] == [
        "if a worker is gone: the whole job restarts, as it reads a source",
        'if a worker is gone: it comes back alone, with the restart scope "subtask"',
    ]
    assert "is gone" not in job().plan(checkpointing=checkpointing(tmp_path, "aligned"))


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        (OnceSink(), "OnceSink (uid out) cannot open a writer twice in a generation"),
        (
            rt.JsonlSink("/tmp/nowhere", roll_interval="1min"),
            "JsonlSink (uid out) cannot open a writer twice",
        ),
    ],
    ids=["unsaid", "held back"],
)
def test_not_with_a_sink_whose_writer_cannot_be_opened_again(
    sink: rt.Sink, why: str, tmp_path: Path
) -> None:
    assert f"the whole job restarts, as {why}" in job(sink).plan(
        checkpointing=checkpointing(tmp_path)
    )
    assert alone(job(sink)) == {}


def test_not_in_front_of_others(tmp_path: Path) -> None:
    env = rt.Environment(parallelism=3)
    counted = counts(env).process(Keep(), uid="keep").key_by(lambda row: row)
    counted.process(Keep(), uid="again").sink(OnceSink(), uid="out")
    sends = r"vertex 1: it sends to vertex 2, which has seen what it would do again"
    refused(sends, env, checkpointing=checkpointing(tmp_path))


class Expires(Keep):
    kept = rt.ValueState(0, ttl="1h")


def test_in_front_of_others_if_it_does_the_same_again(tmp_path: Path) -> None:
    env = rt.Environment(parallelism=3)
    counted = counts(env).process(Keep(), uid="keep").filter(bool).key_by(lambda row: row)
    counted.process(Keep(), uid="again").sink(rt.CollectSink())
    plan = env.plan(checkpointing=checkpointing(tmp_path))
    assert 'alone, with the restart scope "replay" if functions are deterministic' in plan
    graph = build_execution_graph(env.graph("job"))
    placed = place(graph, rt.Options())
    assert sorted(alone_by_worker(graph, placed, "replay")) == [1, 2, 3, 4, 5, 6]
    assert sorted(alone_by_worker(graph, placed, "subtask")) == [4, 5, 6]
    assert alone_by_worker(graph, placed, "job") == {}
    together = dict.fromkeys(placed, 1) | {SubtaskId(0, 0): 0}
    assert alone_by_worker(graph, together, "replay") == {}


@pytest.mark.parametrize(
    "between",
    [
        lambda keyed: keyed.process(Keep()).map_batches(list),
        lambda keyed: by_column(keyed).aggregate(rt.Count()),
        lambda keyed: by_column(keyed).aggregate(rt.Count(), emit="end"),
        lambda keyed: by_column(keyed).window(rt.CountWindow(2)).aggregate(rt.Sum("n")),
        lambda keyed: keyed.window(rt.CountWindow(2)).reduce(max),
        lambda keyed: by_column(keyed).top_n(2, by="n"),
    ],
    ids=["a function", "updates", "end", "window", "window of rows", "top_n"],
)
def test_in_front_of_others_by_batches(
    between: Callable[[KeyedStream], Any], tmp_path: Path
) -> None:
    env = rt.Environment(parallelism=3)
    between(counts(env)).key_by(lambda n: n).process(Keep(), uid="again").sink(rt.CollectSink())
    lines = env.plan(checkpointing=checkpointing(tmp_path)).splitlines()
    assert any(
        "functions are deterministic, and logs the order of what it reads" in line for line in lines
    )


@pytest.mark.parametrize(
    "between",
    [
        lambda keyed: keyed.process(Later()),
        lambda keyed: by_column(keyed).aggregate(rt.Count(), emit="1s"),
        lambda keyed: (
            by_column(keyed)
            .window(rt.GlobalWindow(rt.AfterTime("1s", clock="processing")))
            .aggregate(rt.Count())
        ),
    ],
    ids=["timers", "interval", "trigger"],
)
def test_in_front_of_others_by_the_clock(
    between: Callable[[KeyedStream], Any], tmp_path: Path
) -> None:
    env = rt.Environment(parallelism=3)
    between(counts(env)).key_by(lambda n: n).process(Keep(), uid="again").sink(rt.CollectSink())
    lines = env.plan(checkpointing=checkpointing(tmp_path)).splitlines()
    assert any("logs the order of what it reads and what the clock shows" in line for line in lines)


def test_in_front_of_others_with_several_channels(tmp_path: Path) -> None:
    env = rt.Environment(parallelism=3)
    second = counts(env).process(Keep(), uid="keep").key_by(lambda n: n).process(Keep(), uid="more")
    second.key_by(lambda n: n).process(Keep(), uid="again").sink(rt.CollectSink())
    replay = 'it comes back alone, with the restart scope "replay" if functions are deterministic'
    lines = env.plan(checkpointing=checkpointing(tmp_path)).splitlines()
    assert [line.strip() for line in lines if "if a worker is gone" in line] == [
        "if a worker is gone: the whole job restarts, as it reads a source",
        f"if a worker is gone: {replay}",
        f"if a worker is gone: {replay}, and logs the order of what it reads",
        'if a worker is gone: it comes back alone, with the restart scope "subtask"',
    ]
    graph = build_execution_graph(env.graph("job"))
    placed = place(graph, rt.Options())
    assert sorted(alone_by_worker(graph, placed, "replay")) == [*range(1, 10)]


@pytest.mark.parametrize(
    ("between", "why"),
    [
        (lambda keyed: keyed.process(Keep()).rebalance(), "it deals records out in turn"),
        (
            lambda keyed: keyed.process(Expires()).key_by(lambda n: n),
            "process: Expires .* may do it otherwise the second time",
        ),
        (
            lambda keyed: keyed.process(Keep()).map_batches(list, size=2).key_by(lambda n: n),
            "map_batches.* may do it otherwise",
        ),
        (
            lambda keyed: by_column(keyed).aggregate(rt.Count(), ttl="1h").key_by("n"),
            "aggregate.* may do it otherwise",
        ),
        (
            lambda keyed: by_column(keyed).aggregate(rt.Quantile("n")).key_by("n"),
            "aggregate.* may do it otherwise",
        ),
    ],
    ids=["in turn", "by a clock", "batches", "a time to live", "a sketch"],
)
def test_not_if_that_may_come_out_otherwise(
    between: Callable[[KeyedStream], Any], why: str, tmp_path: Path
) -> None:
    env = rt.Environment(parallelism=3)
    stream = between(counts(env))
    rest = stream.process(Keep(), uid="last") if isinstance(stream, KeyedStream) else stream
    rest.map(lambda row: row, uid="end", chain=False).sink(rt.CollectSink())
    plan = env.plan(checkpointing=checkpointing(tmp_path))
    assert re.search(f"the whole job restarts, as {why}.*, and vertex . has seen what it did", plan)


def test_marks_that_force_snapshots_do_not_come_again(tmp_path: Path) -> None:
    replay = rt.Restart.fixed_delay(scope="replay")
    stored = checkpointing(tmp_path, "communication_induced")
    with pytest.raises(ConfigurationError, match="marks that force snapshots would not come again"):
        job().execute(restart=replay, checkpointing=stored)


def refused(message: str, env: rt.Environment, **run: object) -> None:
    with pytest.raises(ConfigurationError, match=message):
        env.execute(restart=ALONE, **run)  # type: ignore[arg-type]


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    stored = checkpointing(tmp_path)
    refused('scope="subtask" needs checkpointing with mode="uncoordinated"', job())
    aligned = checkpointing(tmp_path, "aligned")
    refused('needs checkpointing with mode="uncoordinated"', job(), checkpointing=aligned)
    refused("scope of restart has no effect", job(), checkpointing=stored, runner="inline")
    cluster = rt.HostCluster("127.0.0.1:0")
    refused("needs workers on this machine", job(), checkpointing=stored, cluster=cluster)
    refused(r"vertex 1: OnceSink \(uid out\) cannot open", job(OnceSink()), checkpointing=stored)


def test_a_scope_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="scope must be one of 'job', 'subtask', 'replay', got 'all'"
    ):
        rt.Restart.failure_rate(scope="all")  # type: ignore[arg-type]
