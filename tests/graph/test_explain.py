"""The printed plan, word for word."""

from __future__ import annotations

import operator

import pytest

from minirt import (
    Checkpointing,
    ConfigurationError,
    Environment,
    KeyedProcess,
    Sink,
    Source,
    Watermarks,
)
from minirt.graph.explain import explain
from minirt.graph.planner import build_execution_graph


class Flights(Source):
    side_errors = True

    def plan_splits(self, parallelism):
        raise NotImplementedError

    def open_split(self, split, offset):
        raise NotImplementedError


class Files(Sink):
    def open_writer(self, context):
        raise NotImplementedError


class Hourly(KeyedProcess):
    def process(self, record, ctx):
        return None


DELAYS = """\
job delays: 3 vertices, 5 subtasks, 2 links, 6 channels
checkpoint mode: aligned

vertex 0: parallelism 2, max parallelism 128
    Flights         source  uid flights, watermarks 300 s behind, speed 10
    filter: truth   filter  uid filter-truth
    map: parse row  map     uid parse
    => from Flights (uid flights) side output errors to vertex 1 input 0: rebalance, 2 channels
       not chained: side outputs are sent over channels
       records that a barrier overtakes: captured
       captured records at another parallelism: dealt out in whole channels, any subtask may have them
    => to vertex 2 input 0: hash by origin, carrier, 4 channels
       not chained: records go to the subtask of their key
       records that a barrier overtakes: captured
       captured records at another parallelism: each goes to the subtask of its key

vertex 1: parallelism 1, max parallelism 128
    Files  sink  uid bad

vertex 2: parallelism 2, max parallelism 128
    process: Hourly  keyed_process  uid hourly
    Files            sink           uid out"""


def test_the_plan_of_a_keyed_job_with_a_side_output():
    env = Environment(parallelism=2)
    flights = env.source(
        Flights(),
        uid="flights",
        watermarks=Watermarks.bounded("5min", timestamp="time"),
        speed=10,
    )
    flights.side_output("errors").sink(Files(), uid="bad", parallelism=1)
    (
        flights.filter(operator.truth)
        .map(lambda row: row, uid="parse", name="map: parse row")
        .key_by("origin", "carrier")
        .process(Hourly(), uid="hourly")
        .sink(Files(), uid="out")
    )
    execution = build_execution_graph(env.graph("delays"))
    assert explain(execution, "aligned") == DELAYS


FAN = """\
job fan: 5 vertices, 10 subtasks, 5 links, 15 channels

vertex 0: parallelism 2, max parallelism 64
    Flights  source  uid a
    => to vertex 2 input 0: forward, 2 channels
       not chained: connected has 3 input edges
       not overtaken by barriers: records of a key would lose their order at another parallelism; \
forward(ordered=False) if it does not matter
       barriers wait until its queues are consumed; options.debloat keeps them short
    => to vertex 2 input 0: hash by function len, 4 channels
       not chained: records go to the subtask of their key
       records that a barrier overtakes: captured
       captured records at another parallelism: each goes to the subtask of its key

vertex 1: parallelism 1, max parallelism 64
    Flights  source  uid b
    => to vertex 2 input 1: broadcast, 2 channels
       not chained: every subtask gets every record
       records that a barrier overtakes: captured
       captured records at another parallelism: each subtask gets what one old subtask had still to see

vertex 2: parallelism 2, max parallelism 64
    connected    co_map       uid connected
    map_batches  map_batches  uid map_batches
    => to vertex 3 input 0: rescale, 3 channels
       not chained: records are dealt out in turn
       records that a barrier overtakes: captured
       captured records at another parallelism: dealt out in whole channels, any subtask may have them
    => to vertex 4 input 0: custom by a lambda with function pow, 4 channels
       not chained: a function picks the subtask
       records that a barrier overtakes: captured
       captured records at another parallelism: each goes where the function sends it

vertex 3: parallelism 3, max parallelism 64
    map    map   uid map
    Files  sink  uid thirds

vertex 4: parallelism 2, max parallelism 64
    Files  sink  uid halves"""


def test_the_plan_of_a_job_with_fan_in_and_fan_out():
    env = Environment("fan", parallelism=2, max_parallelism=64)
    a = env.source(Flights(), uid="a")
    b = env.source(Flights(), uid="b", parallelism=1)
    both = a.union(a.key_by(len)).connect(b.broadcast())
    batches = both.map(str, str, name="connected", uid="connected").map_batches(lambda rows: rows)
    thirds = batches.rescale().map(lambda r: r, parallelism=3)
    thirds.sink(Files(), uid="thirds", parallelism=3)
    batches.partition_custom(pow, lambda r: r).sink(Files(), uid="halves")
    assert env.plan() == FAN


def test_an_edge_that_the_user_keeps_out_of_the_chain_says_so():
    env = Environment()
    source = env.source(Flights(), uid="a")
    source.map(str, uid="m", chain=False).sink(Files())
    assert "not chained: map: str (uid m) has chain=False" in env.plan()


BRANCHES = """\
job branches: 2 vertices, 4 subtasks, 1 link, 4 channels

vertex 0: parallelism 2, max parallelism 128
    Flights  source  uid a
    - parse  map     uid parse
      - x    sink    uid x
      - y    sink    uid y
    - z      sink    uid z
    => from parse to vertex 1 input 0: rebalance, 4 channels
       not chained: records are dealt out in turn
       records that a barrier overtakes: captured
       captured records at another parallelism: dealt out in whole channels, any subtask may have them

vertex 1: parallelism 2, max parallelism 128
    late  sink  uid late"""


def test_the_plan_of_a_chain_with_branches():
    env = Environment("branches", parallelism=2)
    source = env.source(Flights(), uid="a")
    parsed = source.map(str, uid="parse", name="parse")
    source.sink(Files(), uid="z", name="z")
    parsed.sink(Files(), uid="x", name="x")
    parsed.rebalance().sink(Files(), uid="late", name="late")
    parsed.sink(Files(), uid="y", name="y")
    assert env.plan() == BRANCHES


def test_an_impure_partitioner_keeps_its_link_from_being_captured():
    env = Environment(parallelism=2)
    source = env.source(Flights(), uid="a")
    source.partition_custom(pow, lambda r: r, pure=False).sink(Files(), uid="out")
    assert "       not overtaken by barriers: its function is impure" in env.plan()
    assert "captured" not in env.plan()


def test_the_plan_names_the_mode_it_is_given():
    env = Environment()
    env.source(Flights(), uid="a").sink(Files(), uid="out")
    plan = env.plan(checkpointing=Checkpointing("memory://x", mode="unaligned"))
    assert plan.splitlines()[1] == "checkpoint mode: unaligned"
    with pytest.raises(ConfigurationError, match="no checkpoint mode 'unligned'"):
        env.plan(checkpointing=Checkpointing("memory://x", mode="unligned"))
